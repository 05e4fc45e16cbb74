#!/bin/sh
# What tests/install/run.sh does inside the minimal Debian. LANG is unset, /dev/shm has 64 MB.
set -eu

mark() { printf '\n== %s\n' "$*"; }
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

useradd --create-home ann
useradd --create-home bob
long=$(printf 'x%.0s' $(seq 1 110))
place="/home/ann/a place with spaces/$long"
[ ${#place} -ge 140 ] || fail "the path is too short: ${#place}"
for owner in ann bob; do
    folder=$([ $owner = ann ] && printf '%s' "$place" || printf '/home/bob/terrace')
    mkdir -p "$folder"
    cp -a /srv/newcomer/. "$folder/"
    chown -R $owner:$owner /home/$owner
done
cp -a /srv/newcomer /root/terrace

mark "as a user without sudo, python3-venv is missing: one line says what to type"
if said=$(cd "$place" && runuser -u ann -- make up 2>&1); then
    fail "make up went on without python3-venv: $said"
fi
printf '%s\n' "$said" | grep -q 'sudo apt-get install .*python3.*-venv' || fail "it said: $said"

mark "as root, in /root: the missing package is installed, after saying so"
python3 /root/visit.py root /root/terrace

mark "as a user, in a path of ${#place} characters with spaces"
runuser -u ann -- python3 - "ann" "$place" </root/visit.py

mark "another user while the first one's runs"
(cd "$place" && exec runuser -u ann -- make up) >/tmp/ann.out 2>&1 &
until grep -q '^Logs: ' /tmp/ann.out; do
    kill -0 $! || fail "make up ended: $(cat /tmp/ann.out)"
    sleep 0.2
done
runuser -u bob -- python3 - bob /home/bob/terrace http://127.0.0.1:8000 </root/visit.py
kill -INT "$(cat "$place/.terrace/supervisor.lock")"
wait $! || true
grep -q '^Terrace has ended' /tmp/ann.out || fail "no orderly end: $(cat /tmp/ann.out)"

if [ -n "${WITH_TESTS:-}" ]; then
    mark "make test as root"
    (cd /root/terrace && make test)
    mark "make test as a user"
    (cd /home/bob/terrace && runuser -u bob -- make test)
fi
mark "make test-install: all passed"
