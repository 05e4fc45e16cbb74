#!/bin/sh
# Look up every locked package in the databases of known vulnerabilities: PyPI's and npm's.
# The tool lives in a folder of its own, so that what it needs is not what Terrace runs on.
set -eu
cd "$(dirname "$0")/.."

tool=.cache/pip-audit
[ -x "$tool/bin/pip-audit" ] || {
    python3 -m venv "$tool"
    "$tool/bin/pip" install --quiet "pip-audit==2.9.0"
}
for lock in run agent dev; do
    "$tool/bin/pip-audit" --require-hashes --disable-pip --requirement "requirements/$lock.txt"
done
npm audit --package-lock-only
