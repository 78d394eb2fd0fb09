#!/bin/bash
# release.sh RELEASE FOLDER PATTERN…
#
# Unpacks packages of another release of Debian into FOLDER, without installing them: for each
# PATTERN the newest package whose whole name matches this regular expression. They come
# from the same archive as the packages of this release. If one of them is
# not available, the script fails and leaves no FOLDER.
set -euo pipefail
release=${1:?usage: release.sh RELEASE FOLDER PATTERN…}
folder=${2:?}
shift 2
uri=$(apt-get indextargets 'Created-By: Packages' 'Component: main' 'Codename: bookworm' --format '$(REPO_URI)' | head -1)
[[ -n $uri ]] || { echo "release.sh: apt has no archive of Debian 12" >&2; exit 1; }

work=$folder.new
rm -rf "$work"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,archives/partial,deb,root}
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $release main" >"$work/sources.list"
options=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/lists"
  -o "Dir::Cache=$work" -o Acquire::Languages=none -o APT::Sandbox::User=root)
apt-get -qq "${options[@]}" update >&2
packages=()
for pattern in "$@"; do
  # With an empty status file, because apt-cache would otherwise list installed packages, too.
  name=$(apt-cache "${options[@]}" -o Dir::State::status=/dev/null search --names-only "^$pattern\$" | awk '{print $1}' | sort -V | tail -1)
  [[ -n $name ]] || { echo "release.sh: $release has no package $pattern" >&2; exit 1; }
  packages+=("$name/$release")
done
echo "fetching ${packages[*]}" >&2
(cd "$work/deb" && apt-get -qq "${options[@]}" download "${packages[@]}") >&2
for deb in "$work"/deb/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
rm -rf "$folder"
mv "$work/root" "$folder"
