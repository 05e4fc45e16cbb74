#!/bin/sh
# Look up every locked package in the databases of known vulnerabilities: pip's and npm's.
#
# Ends with 0 if nothing is known, 1 if something is, and 75 if a database could not be asked, which
# says nothing about the packages: without a network nothing is looked up, and nothing is changed.
# The tool lives in a folder of its own, so that what it needs is not what Terrace runs on.
set -eu
cd "$(dirname "$0")/.."

version=2.9.0
folder=.cache/pip-audit-$version
tool=${AUDIT_TOOL:-$folder/bin/pip-audit}
silent='Connection(Error|Refused)|Max retries|Name or service|Temporary failure|timed out|ENOTFOUND|EAI_AGAIN|ECONN|ETIMEDOUT|No matching distribution|audit endpoint returned an error|ServiceError|could not be audited'
said=$(mktemp)
trap 'rm -f "$said"' EXIT
known='' unasked=''

# look_up WHAT COMMAND...: run it, show what it says, and note how it ended.
look_up() {
    what=$1
    shift
    printf '%s: ' "$what"
    if "$@" >"$said" 2>&1 && ! grep -q 'could not be audited' "$said"; then
        echo 'nothing is known'
    elif grep -qE "$silent" "$said"; then
        unasked="$unasked $what"
        echo 'not asked: the database of vulnerabilities cannot be reached'
    else
        known="$known $what"
        echo 'look at this:'
        cat "$said"
    fi
}

get_tool() {
    python3 -m venv "$folder" && "$folder/bin/pip" install --quiet "pip-audit==$version"
}

if [ ! -x "$tool" ]; then
    look_up 'the tool itself' get_tool
fi
if [ -x "$tool" ]; then
    for lock in run agent dev; do
        look_up "requirements/$lock.txt" \
            "$tool" --require-hashes --disable-pip --requirement "requirements/$lock.txt"
    done
else
    rm -rf "$folder"
fi
look_up package-lock.json npm audit --package-lock-only

if [ -n "$known" ]; then
    echo "Vulnerabilities are known:$known. Lock newer versions: make lock."
    exit 1
elif [ -n "$unasked" ]; then
    echo "Not looked up:$unasked. Run make audit again where there is a network."
    exit 75
fi
