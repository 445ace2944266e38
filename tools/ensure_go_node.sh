#!/usr/bin/env bash
# Usage: ensure_go_node.sh [go] [node]
# Makes sure that each named part is there (Go 1.18 or newer; Node.js 14 or newer with npm), installing
# it by apt-get where that is possible. Otherwise prints one line that says what to install, and fails.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Prints "major minor" of the first version number in a text, "0 0" without one.
numbers() {
    local text
    text=$(grep -oE '[0-9]+\.[0-9]+' <<<"$1" | head -n 1) || true
    text=${text:-0.0}
    echo "${text%%.*} ${text##*.}"
}

has_go() {
    local go major minor
    # Where Go's own archives put it.
    go=$(command -v go || command -v /usr/local/go/bin/go) || return 1
    read -r major minor < <(numbers "$("$go" version 2>/dev/null)")
    [ "$major" -gt 1 ] || { [ "$major" -eq 1 ] && [ "$minor" -ge 18 ]; }
}

has_node() {
    local major _minor
    command -v node >/dev/null && command -v npm >/dev/null || return 1
    read -r major _minor < <(numbers "$(node --version 2>/dev/null)")
    [ "$major" -ge 14 ]
}

has() {
    case $1 in
        go) has_go ;;
        node) has_node ;;
        *) echo "ensure_go_node.sh: unknown part: $1" >&2; exit 2 ;;
    esac
}

install_part() {
    case $1 in
        go) bash "$here/apt_install.sh" golang-go ;;
        node) bash "$here/apt_install.sh" nodejs npm ;;
    esac
}

[ $# -gt 0 ] || set -- go node
missing=()
for part in "$@"; do
    has "$part" || install_part "$part" || true
    hash -r
    has "$part" || missing+=("$part")
done
[ ${#missing[@]} -eq 0 ] && exit 0

declare -A wanted=([go]="Go 1.18 or newer (go)" [node]="Node.js 14 or newer with npm")
text=""
for part in "${missing[@]}"; do text+="${text:+ and }${wanted[$part]}"; done
echo "Please install $text; the tests of that client are skipped." >&2
exit 1
