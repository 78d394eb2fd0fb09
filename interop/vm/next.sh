#!/bin/bash
# next.sh CACHE OUT
#
# Builds the verbs agent a second time, with the rdma-core of the Debian release
# after this one, as OUT: libibverbs 44 of Debian 12 has no ibv_wr_flush. It is
# linked statically, since the guest's libraries are Debian 12's, from packages that
# are unpacked in CACHE and installed nowhere. Where they cannot be had it says so
# and makes nothing.
set -euo pipefail
cache=${1:?usage: next.sh CACHE OUT}
out=${2:?}
here=$(cd "$(dirname "$0")" && pwd)
release=trixie
packages=(libibverbs-dev libnl-3-dev libnl-route-3-dev libc6-dev linux-libc-dev)

tree=$cache/rdma-core-$release
if [[ ! -d $tree ]]; then
  # The same archive apt has this release from.
  uri=$(apt-get indextargets 'Created-By: Packages' 'Component: main' 'Codename: bookworm' --format '$(REPO_URI)' | head -1)
  [[ -n $uri ]] || { echo "next.sh: apt has no archive of Debian 12" >&2; exit 0; }
  echo "fetching rdma-core of Debian $release" >&2
  work=$tree.new
  rm -rf "$work"
  mkdir -p "$work"/{lists/partial,archives/partial,deb,root}
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $release main" >"$work/sources.list"
  apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/lists"
    -o "Dir::Cache=$work" -o Acquire::Languages=none -o APT::Sandbox::User=root)
  if ! ("${apt[@]}" update && cd "$work/deb" && "${apt[@]}" download "${packages[@]/%//$release}") >&2; then
    echo "next.sh: it cannot be had: FLUSH will not be tested with rxe as the requester" >&2
    rm -rf "$work"
    exit 0
  fi
  for deb in "$work"/deb/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
  mv "$work/root" "$tree"
  rm -rf "$work"
fi

lib=$tree/usr/lib/x86_64-linux-gnu
gccfile() { gcc -print-file-name="$1"; }
gcc -std=gnu11 -O1 -Wall -Wextra -Werror -DHAVE_FLUSH -DRDMA_STATIC_PROVIDERS=rxe \
  -nostdinc -isystem "$(gccfile include)" -isystem "$tree/usr/include" -isystem "$tree/usr/include/x86_64-linux-gnu" \
  -static -nostdlib -o "$out" "$lib/crt1.o" "$lib/crti.o" "$(gccfile crtbeginT.o)" "$here"/verbs/*.c -L"$lib" \
  -Wl,--no-warnings -Wl,--start-group -libverbs -lrxe-rdmav34 -lnl-route-3 -lnl-3 -lc "$(gccfile libgcc.a)" "$(gccfile libgcc_eh.a)" -Wl,--end-group \
  "$(gccfile crtend.o)" "$lib/crtn.o"
