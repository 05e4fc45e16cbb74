#!/bin/sh
# Try `make up` as a newcomer: a minimal Debian with make and python3, as root and as a user in it.
#
#   make test-install                 start, use, stop, start again; a selection of the tests
#   make test-install TESTS=tests     all tests, as root and as the user
#   make test-install SUITE=trixie    in another Debian
#
# Needs root (for debootstrap and chroot) and Debian's debootstrap. The system is made once, in
# .cache/install, and copied for each run. How packages are reached is the machine's own business:
# the settings of apt and pip, and what the environment says of proxies and certificates, go along.
set -eu

# One of each kind: pure code, the database's server, a page in a browser. What the tests of
# processes do with `make up` is done here with the real one.
tests="tests/unit/supervisor tests/db/test_embedded.py"
tests="$tests tests/browser/test_pages.py::test_pages_obey_the_policy_and_raise_no_error"

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
cache="$checkout/.cache/install"
suite=${SUITE:-bookworm}
base="$cache/$suite"
system="$cache/run-$$"

[ "$(id -u)" -eq 0 ] || { echo "make test-install needs root: sudo make test-install" >&2; exit 1; }
if ! command -v debootstrap >/dev/null 2>&1; then
    echo "Installing from Debian: debootstrap"
    apt-get install --yes -qq debootstrap >/dev/null || {
        apt-get update -qq
        apt-get install --yes -qq debootstrap >/dev/null
    }
fi

if [ ! -d "$base" ]; then
    echo "Making a minimal Debian ($suite) in $base"
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | head -n 1)
    mkdir -p "$cache"
    rm -rf "$base.new"
    debootstrap --variant=minbase --include=make,python3,ca-certificates \
        "$suite" "$base.new" ${mirror:+"$mirror"} >"$cache/debootstrap.log" 2>&1 || {
        tail -n 20 "$cache/debootstrap.log" >&2
        exit 1
    }
    mv "$base.new" "$base"
fi

cleanup() {
    # Mounts live in the namespace below and are gone with it.
    rm -rf --one-file-system "$system"
}
trap cleanup EXIT INT TERM

echo "Copying it to $system"
cp -a "$base" "$system"
# How this machine reaches its mirrors: resolver, certificates, and the settings of apt and pip,
# of which the person's own stand beside the machine's.
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ -e "$file" ] && cp -L "$file" "$system$file"
done
for folder in /etc/apt/apt.conf.d /usr/local/share/ca-certificates; do
    [ -d "$folder" ] && mkdir -p "$system$folder" && cp -rL "$folder/." "$system$folder/"
done
own_pip="${XDG_CONFIG_HOME:-${HOME:-/root}/.config}/pip/pip.conf"
if [ -e "${PIP_CONFIG_FILE:-$own_pip}" ]; then
    mkdir -p "$system/etc/xdg/pip"
    cp -L "${PIP_CONFIG_FILE:-$own_pip}" "$system/etc/xdg/pip/pip.conf"
fi
python3 -c '
import os, re, shlex
wanted = re.compile(r"PIP_(?!CONFIG_FILE)\w+|\w+_(proxy|PROXY)|SSL_CERT_FILE|REQUESTS_CA_BUNDLE")
for name, value in os.environ.items():
    if wanted.fullmatch(name):
        print(f"export {name}={shlex.quote(value)}")
' >"$system/root/passed-on"

# What git would clone of the working tree, without its history.
mkdir -p "$system/srv/newcomer"
git -C "$checkout" ls-files --cached -z |
    tar --create --null --files-from=- --directory="$checkout" --ignore-failed-read 2>/dev/null |
    tar --extract --directory="$system/srv/newcomer"
chmod -R a+rX "$system/srv/newcomer"
for name in inside.sh visit.py alone.py; do
    cp "$checkout/tests/install/$name" "$system/root/"
done

# A namespace of its own for mounts and processes: whatever a failed start leaves dies with it.
SYSTEM="$system" TESTS="${TESTS:-$tests}" unshare --mount --pid --fork sh -euc '
    mount --rbind /dev "$SYSTEM/dev"
    mount -t proc proc "$SYSTEM/proc"
    mount -t tmpfs -o size=64m,mode=1777 tmpfs "$SYSTEM/dev/shm"
    mount -t tmpfs -o mode=1777 tmpfs "$SYSTEM/tmp"
    exec chroot "$SYSTEM" /usr/bin/env -i TESTS="$TESTS" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        sh -c ". /root/passed-on; exec sh /root/inside.sh"
'
