#!/usr/bin/env bash
# Usage: apt_install.sh PACKAGE... ; installs by apt-get when this user may, fails quietly otherwise.
set -euo pipefail

command -v apt-get >/dev/null || exit 1
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    # Never ask for a password: a test run cannot answer.
    sudo -n true 2>/dev/null || exit 1
    as_root=(sudo -n)
fi

export DEBIAN_FRONTEND=noninteractive
apt=("${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=120)
install=("${apt[@]}" install -y --no-install-recommends "$@")
# Fresh machines have no package lists yet; old lists may name versions that are gone.
"${install[@]}" >/dev/null 2>&1 || { "${apt[@]}" update >/dev/null 2>&1 && "${install[@]}" >/dev/null 2>&1; }
