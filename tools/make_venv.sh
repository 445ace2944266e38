#!/usr/bin/env bash
# Usage: make_venv.sh PYTHON DIRECTORY ; a virtualenv with this package (editable) and what
# requirements.lock pins.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
python=${1:-}
venv=${2:?which directory}

if [ -z "$python" ]; then
    echo "Please install Python 3.10 or newer (python3), or name one: make PYTHON=/path/to/python" >&2
    exit 1
fi

create() { "$python" -m venv "$venv" >/dev/null 2>&1; }
if [ ! -x "$venv/bin/pip" ]; then
    echo "Creating $venv with $("$python" --version)"
    # Debian splits venv from python3; a half-made directory from a failed try is in the way.
    create || { rm -rf "$venv"; bash "$here/apt_install.sh" python3-venv && create; } || {
        rm -rf "$venv"
        echo "Please install the venv module of $python (Debian: python3-venv)" >&2
        exit 1
    }
fi
lock=$root/requirements.lock
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
# Exactly the files that requirements.lock names. What builds packages comes first, because it is
# used from there on: an environment that pip makes for a build is filled without hashes.
builders=$(mktemp)
trap 'rm -f "$builders"' EXIT
awk '/^[a-z]/ { wanted = /^(packaging|pip|setuptools|wheel)==/ } wanted' "$lock" >"$builders"
"${pip[@]}" --require-hashes --requirement "$builders"
"${pip[@]}" --no-build-isolation --require-hashes --requirement "$lock"
# By path, so that Spark, which lists modules, finds the data source from any working directory.
"${pip[@]}" --no-build-isolation --no-deps \
    --config-settings editable_mode=compat --editable "$root"
