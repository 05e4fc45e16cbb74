#!/bin/sh
# Try `make up` as a newcomer: a minimal Debian with make and python3, as root and as a user in it.
#
#   make test-install                 start, use, stop, start again; about three minutes
#   make test-install WITH_TESTS=1    and `make test` in it, as root and as the user
#
# Needs root (for debootstrap and chroot) and Debian's debootstrap. The system is made once, in
# .cache/install, and copied for each run. Network settings are the machine's own.
set -eu

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
# How this machine reaches its mirrors: resolver, certificates, and the settings of apt and pip.
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ -e "$file" ] && cp -L "$file" "$system$file"
done
for folder in /etc/apt/apt.conf.d /usr/local/share/ca-certificates; do
    [ -d "$folder" ] && mkdir -p "$system$folder" && cp -rL "$folder/." "$system$folder/"
done

# What git would clone of the working tree, without its history.
mkdir -p "$system/srv/newcomer"
git -C "$checkout" ls-files --cached -z |
    tar --create --null --files-from=- --directory="$checkout" --ignore-failed-read 2>/dev/null |
    tar --extract --directory="$system/srv/newcomer"
chmod -R a+rX "$system/srv/newcomer"
cp "$checkout/tests/install/inside.sh" "$checkout/tests/install/visit.py" "$system/root/"

# A namespace of its own for mounts and processes: whatever a failed start leaves dies with it.
SYSTEM="$system" unshare --mount --pid --fork sh -euc '
    mount --rbind /dev "$SYSTEM/dev"
    mount -t proc proc "$SYSTEM/proc"
    mount -t tmpfs -o size=64m,mode=1777 tmpfs "$SYSTEM/dev/shm"
    mount -t tmpfs -o mode=1777 tmpfs "$SYSTEM/tmp"
    exec chroot "$SYSTEM" /usr/bin/env -i WITH_TESTS="${WITH_TESTS:-}" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh /root/inside.sh
'
