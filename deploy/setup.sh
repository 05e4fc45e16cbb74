#!/bin/sh
# Make .venv from the lock files, and what it needs from Debian.
#
#   sh deploy/setup.sh run          to run Terrace
#   sh deploy/setup.sh dev          to check it as well
#   sh deploy/setup.sh dev scripts  and the linter of scripts and styles
#   sh deploy/setup.sh dev browser  and the Chromium and Node.js that the tests drive
#
# A missing Debian package is installed where that needs no password, after saying so; elsewhere
# the command to type is printed. Stamps make the second run quick, and tell a whole .venv from one
# whose installation was interrupted: what pip leaves half is made anew, not repaired.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$here"
kind=${1:-run}
wants=${2:-}
lock="requirements/$kind.txt"

say() { printf '%s\n' "$*"; }
fail() {
    say "$*" >&2
    exit 1
}

# Install Debian packages, or say how.
need() {
    line="apt-get install --yes --no-install-recommends $*"
    if ! command -v apt-get >/dev/null 2>&1; then
        fail "Terrace needs: $*. Install it with this machine's package manager."
    elif [ "$(id -u)" -eq 0 ]; then
        as=""
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as="sudo -n"
    else
        fail "Terrace needs: $*. Install it with: sudo $line"
    fi
    say "Installing from Debian: $* ($as${as:+ }$line)"
    # A fresh container has no lists, and an old list names versions that are gone.
    $as env DEBIAN_FRONTEND=noninteractive $line >/dev/null 2>&1 ||
        { $as apt-get update -qq && $as env DEBIAN_FRONTEND=noninteractive $line >/dev/null; } ||
        fail "That did not work. Try: sudo $line"
}

fits() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

# The first Python that fits. As root the system's comes first: one below /root could not be run
# by the unprivileged user that the servers run as.
find_python() {
    candidates="python3 python3.13 python3.12 python3.11"
    [ "$(id -u)" -eq 0 ] && candidates="/usr/bin/python3 $candidates"
    for candidate in ${PYTHON:-} $candidates; do
        if command -v "$candidate" >/dev/null 2>&1 && fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

make_venv() {
    python=$(find_python) || fail "Terrace needs Python 3.11, 3.12 or 3.13; this machine has \
$(python3 --version 2>/dev/null || echo 'no python3'). Set PYTHON to the path of one that fits."
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        need "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    fi
    say "Making .venv with $("$python" --version) ($python)"
    rm -rf .venv
    "$python" -m venv .venv
}

# False for a .venv that moved with its checkout, or whose Python is gone or became another version.
is_usable() {
    [ -x .venv/bin/python ] && [ "$(.venv/bin/python -c 'import os, sys, sysconfig
print(sys.prefix if os.path.isdir(sysconfig.get_path("purelib")) else "")' 2>/dev/null)" = \
        "$here/.venv" ]
}

# A stamp is taken away before pip begins and written after it is done, so that none means: killed
# half-way, or never ours.
is_whole() { [ -e "$(stamp run)" ] || [ -e "$(stamp dev)" ]; }

digest() { sha256sum "requirements/$1.txt" | cut -d ' ' -f 1; }
stamp() { printf '.venv/terrace-%s.sha256' "$1"; }
is_installed() { [ "$(cat "$(stamp "$1")" 2>/dev/null)" = "$(digest "$1")" ]; }

is_installed_in_node() { sha256sum --check --status node_modules/terrace.sha256 2>/dev/null; }

# What only root can install comes first: who has to ask somebody for it waits for nothing before,
# and asks once.
missing=""
case $wants in
scripts)
    is_installed_in_node || command -v npm >/dev/null 2>&1 || missing="npm"
    ;;
browser)
    command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
        missing="chromium"
    command -v node >/dev/null 2>&1 || missing="$missing${missing:+ }nodejs"
    # What Playwright's own Node.js is linked with, and a minimal Debian lacks.
    "$(find_python || echo python3)" -c 'import ctypes; ctypes.CDLL("libatomic.so.1")' \
        2>/dev/null || missing="$missing${missing:+ }libatomic1"
    ;;
esac
# shellcheck disable=SC2086 -- names of packages, one word each
[ -z "$missing" ] || need $missing

# One at a time: a second one that begins meanwhile must not take the first one's work for
# interrupted. Who waits is let in when the first, or the pip that outlived it, has ended.
if command -v flock >/dev/null 2>&1; then
    exec 9<deploy/setup.sh
    if ! flock --nonblock 9; then
        say "Waiting for another make that sets this checkout up"
        flock 9
    fi
fi

if ! is_usable; then
    make_venv
elif ! is_whole; then
    say "The installation of .venv was interrupted; beginning again"
    make_venv
fi
if ! is_installed "$kind"; then
    say "Installing what $lock names; the first time this takes about a minute"
    rm -f "$(stamp run)" "$(stamp dev)"
    .venv/bin/python -m pip install -qq --disable-pip-version-check --no-input \
        --require-hashes -r "$lock" || fail "pip could not install $lock; its words are above."
    digest "$kind" >"$(stamp "$kind")"
    # The lock for development has all of the lock for running, in the same versions.
    [ "$kind" = dev ] && digest run >"$(stamp run)"
fi

if [ "$wants" = scripts ] && ! is_installed_in_node; then
    npm ci --ignore-scripts --loglevel=error || fail "npm could not install package-lock.json."
    sha256sum package-lock.json >node_modules/terrace.sha256
fi
