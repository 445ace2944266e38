#!/usr/bin/env bash
# Usage: make_venv.sh PYTHON DIRECTORY ; a virtualenv with this package (editable) and its tools.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
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
# By path, so that Spark, which lists modules, finds the data source from any working directory.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --config-settings editable_mode=compat --editable ".[dev,spark]"
