#!/bin/bash
# setup.sh: installs the Debian packages of packages.txt that are missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

missing=()
while read -r p; do
  case $p in '' | '#'*) continue ;; esac
  dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing+=("$p")
done <"$here/packages.txt"
((${#missing[@]})) || exit 0

echo "installing: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update >&2
apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
