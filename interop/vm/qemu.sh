#!/bin/bash
# qemu.sh
#
# Fetches QEMU of the Debian release after this one, for devices that QEMU of Debian 12 lacks (igb),
# and prints a program that runs it. The packages are unpacked in $ROCE_CACHE (default
# ../.cache), with the libraries that this QEMU needs, and not installed.
set -euo pipefail
release=trixie
packages=(qemu-system-x86 qemu-system-data seabios libaio1t64 libatomic1 libblkid1 libbpf1 libc6 libcap2 libcapstone5 libdaxctl1
  libelf1t64 libfdt1 libffi8 libfuse3-4 libglib2.0-0t64 libgmp10 libgnutls30t64 libhogweed6t64 libibverbs1 libidn2-0
  libjpeg62-turbo libkmod2 libmount1 libndctl6 libnettle8t64 libnl-3-200 libnl-route-3-200 libnuma1 libp11-kit0
  libpcre2-8-0 libpixman-1-0 libpmem1 libpng16-16t64 librdmacm1t64 libsasl2-2 libseccomp2 libselinux1 libslirp0
  libssl3t64 libtasn1-6 libudev1 libunistring5 liburing2 libuuid1 libvdeplug2t64 libzstd1 zlib1g)
here=$(cd "$(dirname "$0")" && pwd)
cache=${ROCE_CACHE:-$here/../.cache}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/qemu.lock"
flock 9

tree=$cache/qemu-$release
[[ -d $tree ]] || "$here/release.sh" "$release" "$tree" "${packages[@]//./\\.}"

# The libraries are those of the other release, and so are the loader and QEMU's modules.
program=$tree/qemu
lib=$tree/usr/lib/x86_64-linux-gnu
cat >"$program.new" <<END
#!/bin/sh
QEMU_MODULE_DIR=$lib/qemu exec $tree/usr/lib64/ld-linux-x86-64.so.2 --library-path $lib $tree/usr/bin/qemu-system-x86_64 \\
  -L $tree/usr/share/qemu -L $tree/usr/share/seabios "\$@"
END
chmod +x "$program.new"
mv "$program.new" "$program"
"$program" --version >&2
echo "$program"
