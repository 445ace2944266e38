#!/usr/bin/env bash
# Prints the first Python on PATH that is 3.10 or newer, or nothing when there is none.
set -euo pipefail

for name in python3 python3.13 python3.12 python3.11 python3.10 python3.14 python; do
    path=$(command -v "$name") || continue
    # A version manager's stand-in may exist without an interpreter behind it: run it.
    if "$path" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
        echo "$path"
        exit 0
    fi
done
