#!/usr/bin/env bash
# Usage: ensure_java.sh [jre] [jdk] [maven]
# Makes sure that each named part is there (Java 17 or newer), installing it by apt-get where that
# is possible. Otherwise prints one line that says what to install, and fails.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Prints the major version of `java` or `javac`, 0 when missing.
major_version() {
    command -v "$1" >/dev/null || { echo 0; return; }
    local text
    text=$("$1" -version 2>&1 | grep -oE '[0-9]+(\.[0-9]+)*' | head -n 1) || true
    text=${text#1.} # 1.8 means 8
    echo "${text%%.*}"
}

has() {
    case $1 in
        jre) [ "$(major_version java)" -ge 17 ] ;;
        jdk) [ "$(major_version javac)" -ge 17 ] ;;
        maven) command -v mvn >/dev/null ;;
        *) echo "ensure_java.sh: unknown part: $1" >&2; exit 2 ;;
    esac
}

# Newer distributions no longer carry 17; their default is newer still.
install_part() {
    case $1 in
        jre) bash "$here/apt_install.sh" openjdk-17-jre-headless || bash "$here/apt_install.sh" default-jre-headless ;;
        jdk) bash "$here/apt_install.sh" openjdk-17-jdk-headless || bash "$here/apt_install.sh" default-jdk-headless ;;
        maven) bash "$here/apt_install.sh" maven ;;
    esac
}

missing=()
for part in "${@:-jre}"; do
    has "$part" || install_part "$part" || true
    hash -r
    has "$part" || missing+=("$part")
done
[ ${#missing[@]} -eq 0 ] && exit 0

declare -A wanted=([jre]="Java 17 or newer" [jdk]="a JDK 17 or newer (javac)" [maven]="Maven (mvn)")
text=""
for part in "${missing[@]}"; do text+="${text:+ and }${wanted[$part]}"; done
echo "Please install $text; the parts that need it are skipped." >&2
exit 1
