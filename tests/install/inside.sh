#!/bin/sh
# What tests/install/run.sh does inside the minimal Debian. LANG is unset, /dev/shm has 64 MB.
set -eu

begun=$(date +%s)
mark() { printf '\n== %4d s  %s\n' "$(($(date +%s) - begun))" "$*"; }
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

useradd --create-home ann
useradd --create-home bob
long=$(printf 'x%.0s' $(seq 1 120))
place="/home/ann/a place with spaces/$long"
[ ${#place} -ge 150 ] || fail "the path is too short: ${#place}"
for owner in ann bob; do
    folder=$([ $owner = ann ] && printf '%s' "$place" || printf '/home/bob/terrace')
    mkdir -p "$folder"
    cp -a /srv/newcomer/. "$folder/"
    chown -R $owner:$owner /home/$owner
done
cp -a /srv/newcomer /root/terrace
[ -z "${LANG:-}${LC_ALL:-}" ] || fail "LANG is set: ${LANG:-}${LC_ALL:-}"

mark "as a user without sudo, python3-venv is missing: one line says what to type"
if said=$(cd "$place" && runuser -u ann -- make up 2>&1); then
    fail "make up went on without python3-venv: $said"
fi
printf '%s\n' "$said"
printf '%s\n' "$said" | grep -q 'sudo apt-get install .*python3.*-venv' || fail "it said: $said"

mark "as root, in /root: the missing package is installed, after saying so"
python3 /root/visit.py root /root/terrace

mark "as a user, in a path of ${#place} characters with spaces"
runuser -u ann -- python3 - "ann" "$place" </root/visit.py

mark "another user, with a LANG that nobody knows, while the first one's runs"
(cd "$place" && exec runuser -u ann -- make up) >/tmp/ann.out 2>&1 &
ann=$!
until grep -q '^Logs: ' /tmp/ann.out; do
    kill -0 $ann || fail "make up ended: $(cat /tmp/ann.out)"
    sleep 0.2
done
address=$(sed -n 's/^Terrace runs at \(http[^ ]*\) .*/\1/p' /tmp/ann.out)
LANG=tlh_QO.utf8 runuser -u bob -- python3 - bob /home/bob/terrace "$address" </root/visit.py
kill -INT "$(cat "$place/.terrace/supervisor.lock")"
wait $ann || true
grep -q '^Terrace has ended' /tmp/ann.out || fail "no orderly end: $(cat /tmp/ann.out)"

mark "from nothing again: no network, no IPv6, the usual ports taken"
rm -rf "$place/.terrace"
unshare --net python3 /root/alone.py runuser -u ann -- python3 - ann "$place" \
    </root/visit.py >/tmp/alone.out 2>&1 || fail "$(cat /tmp/alone.out)"
cat /tmp/alone.out
grep -q 'Port 8000 is taken; web listens on 8002' /tmp/alone.out || fail "port 8000 was not taken"

mark "make test as a user: Chromium is missing, one line says what to type"
if said=$(cd /home/bob/terrace && runuser -u bob -- make test 2>&1); then
    fail "make test went on without Chromium: $said"
fi
printf '%s\n' "$said"
printf '%s\n' "$said" | grep -q 'sudo apt-get install .*chromium' || fail "it said: $said"

mark "make test as root ($TESTS)"
(cd /root/terrace && make test TESTS="$TESTS")

mark "make test as a user ($TESTS)"
(cd /home/bob/terrace && runuser -u bob -- make test TESTS="$TESTS")

mark "make test-install: all passed"
