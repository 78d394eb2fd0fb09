#!/bin/bash
# setup.sh: installs the Debian packages of packages.txt that are missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mapfile -t packages < <(grep -vE '^(#|$)' "$here/packages.txt")
exec "$here/../../scripts/need" "${packages[@]}"
