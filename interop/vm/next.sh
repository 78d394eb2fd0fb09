#!/bin/bash
# next.sh CACHE OUT
#
# Builds the verbs agent a second time, with the rdma-core of the Debian release
# after this one, as OUT: libibverbs 44 of Debian 12 has no ibv_wr_flush. It is
# linked statically, because the guest's libraries are those of Debian 12, from packages that
# are unpacked in CACHE and not installed. If these packages are not available, the script prints a message
# and builds nothing.
set -euo pipefail
cache=${1:?usage: next.sh CACHE OUT}
out=${2:?}
here=$(cd "$(dirname "$0")" && pwd)
release=trixie
packages=(libibverbs-dev libnl-3-dev libnl-route-3-dev libc6-dev linux-libc-dev)

tree=$cache/rdma-core-$release
if [[ ! -d $tree ]] && ! "$here/release.sh" "$release" "$tree" "${packages[@]}"; then
  echo "next.sh: rdma-core of Debian $release is not available: FLUSH will not be tested with rxe as the requester" >&2
  exit 0
fi

lib=$tree/usr/lib/x86_64-linux-gnu
gccfile() { gcc -print-file-name="$1"; }
gcc -std=gnu11 -O1 -Wall -Wextra -Werror -DHAVE_FLUSH -DRDMA_STATIC_PROVIDERS=rxe \
  -nostdinc -isystem "$(gccfile include)" -isystem "$tree/usr/include" -isystem "$tree/usr/include/x86_64-linux-gnu" \
  -static -nostdlib -o "$out" "$lib/crt1.o" "$lib/crti.o" "$(gccfile crtbeginT.o)" "$here"/verbs/*.c -L"$lib" \
  -Wl,--no-warnings -Wl,--start-group -libverbs -lrxe-rdmav34 -lnl-route-3 -lnl-3 -lc "$(gccfile libgcc.a)" "$(gccfile libgcc_eh.a)" -Wl,--end-group \
  "$(gccfile crtend.o)" "$lib/crtn.o"
