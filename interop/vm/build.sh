#!/bin/bash
# build.sh SERIES
#
# Makes a bootable image of a stock Debian kernel of SERIES (6.1, 6.12, or 7: the newest
# one that Debian has in its backports) with rxe, rdma-core's tools, perftest and our
# agents, and prints its folder: vmlinuz, initrd.gz, release. Everything is kept in
# $ROCE_CACHE (default ../.cache), so that a second call only compares a checksum.
# REFRESH=1 looks for a newer kernel.
set -euo pipefail

series=${1:?usage: build.sh SERIES (6.1, 6.12 or 7)}
backports=trixie-backports
here=$(cd "$(dirname "$0")" && pwd)
cache=${ROCE_CACHE:-$here/../.cache}
mkdir -p "$cache/kernels"
cache=$(cd "$cache" && pwd)
say() { echo "vm $series: $*" >&2; }

exec 9>"$cache/vm-$series.lock"
flock 9
"$here/setup.sh"

# --- the kernel: unpacked once, from Debian's signed package --------------------

newest_kernel() {
  case $series in
    6.1) apt-cache depends linux-image-amd64 | grep -oP 'Depends: \Klinux-image-6\.1\.\S+' ;;
    *) apt-cache search "^linux-image-${series//./\\.}\\.[0-9]+\\+deb[0-9]+-amd64\$" | awk '{print $1}' ;;
  esac | sort -V | tail -1
}

# fetch: unpacks the package of this system's release, and sets tree.
fetch() {
  local package
  package=$(newest_kernel || true)
  if [[ -z $package ]]; then
    apt-get -qq update >&2
    package=$(newest_kernel || true)
  fi
  [[ -n $package ]] || { say "this system's package lists have no kernel $series: Debian 12 with its security suite is expected"; exit 1; }
  tree=$cache/kernels/$package
  [[ ! -d $tree ]] || return 0
  say "fetching $package"
  rm -rf "$tree.new"
  mkdir -p "$tree.new/deb"
  (cd "$tree.new/deb" && apt-get -qq -o APT::Sandbox::User=root download "$package")
  dpkg-deb -x "$tree.new"/deb/*.deb "$tree.new"
  rm -r "$tree.new/deb"
  mv "$tree.new" "$tree"
}

# fetch_backport: unpacks the newest kernel of another release, and sets tree. It comes in three
# packages, one for the kernel and two for its modules.
fetch_backport() {
  local at=$cache/kernels/backport-$series name
  "$here/release.sh" "$backports" "$at" "linux-"{binary,modules,base}"-${series//./\\.}\\.[0-9.]+\\+deb[0-9]+-amd64"
  name=$(ls "$at/usr/lib/modules")
  tree=$cache/kernels/linux-image-$name
  rm -rf "$tree"
  mkdir "$at/boot"
  mv "$at/usr/lib/modules/$name/vmlinuz" "$at/boot/vmlinuz-$name"
  ln -s usr/lib "$at/lib"
  mv "$at" "$tree"
}

tree=$(find "$cache/kernels" -mindepth 1 -maxdepth 1 -name "linux-image-$series.*" ! -name '*.new' 2>/dev/null | sort -V | tail -1)
if [[ -z $tree || -n ${REFRESH:-} ]]; then
  case $series in
    6.*) fetch ;;
    *) fetch_backport ;;
  esac
fi
release=$(ls "$tree/lib/modules")

# --- the agents -----------------------------------------------------------------

image=$cache/vm-$series
mkdir -p "$image"
(cd "$here" && CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$image/agent" ./agent)
(cd "$here/verbs" && gcc -std=gnu11 -O1 -Wall -Wextra -Werror -o "$image/verbs-agent" ./*.c -libverbs)
rm -f "$image/verbs-agent-next"
"$here/next.sh" "$cache" "$image/verbs-agent-next"

# --- up to date? ----------------------------------------------------------------

stamp=$({
  sed '/^#/d;/^$/d' "$here/packages.txt" | xargs dpkg-query -W
  echo "$tree"
  cat "$here"/{build.sh,init,modules.txt} "$image"/*agent*
} | sha256sum)
if [[ -f $image/stamp && $(<"$image/stamp") == "$stamp" ]]; then
  echo "$image"
  exit 0
fi
say "building the image of $release"
rm -f "$image"/{stamp,initrd.gz,vmlinuz,release}

# --- the root file system -------------------------------------------------------

root=$image/root
rm -rf "$root"
libs=/lib/x86_64-linux-gnu
mkdir -p "$root"/{bin,sbin,etc/libibverbs.d,proc,sys,dev,tmp,run,root,var,usr/bin,usr/sbin,usr"$libs"/libibverbs,"$libs",lib64}
ln -s ../run "$root/var/run"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
echo '127.0.0.1 localhost' >"$root/etc/hosts"

# with_libs FILE: the shared libraries FILE loads, at the paths it looks for them.
with_libs() {
  local l
  for l in $(ldd "$1" 2>/dev/null | grep -oE '/[^ )]+' || true); do
    mkdir -p "$root$(dirname "$l")"
    [[ -e $root$l ]] || cp -L "$l" "$root$l"
  done
}
program() {
  local name path
  for name in "$@"; do
    path=$(command -v "$name") || { say "missing program: $name"; exit 1; }
    cp -L "$path" "$root/usr/bin/$name"
    with_libs "$path"
  done
}

# busybox supplies the other programs; its ip and modprobe lack features that the guest needs.
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in $(busybox --list | grep -vxE 'busybox|ip|tc|modprobe|insmod|lsmod|rmmod|modinfo|depmod|sh'); do
  ln -s busybox "$root/bin/$applet"
done
program dash kmod stdbuf timeout ip tc rdma tcpdump ethtool \
  ibv_devices ibv_devinfo ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong ibv_asyncwatch \
  rping ucmatose mckey udaddy rstream riostream udpong rdma_client rdma_server cmtime fi_info fi_pingpong \
  ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw ib_atomic_lat
for name in modprobe insmod lsmod; do ln -sf kmod "$root/usr/bin/$name"; done
ln -s /usr/bin/kmod "$root/sbin/modprobe" # the path at which the kernel calls modprobe
ln -s /usr/bin/dash "$root/bin/sh"
cp -L "$libs/libgcc_s.so.1" "$root$libs/"  # pthread_exit (rping) loads it
stdbuf_lib=$(dpkg -L coreutils | grep 'libstdbuf.so$')
mkdir -p "$root$(dirname "$stdbuf_lib")"
cp -L "$stdbuf_lib" "$root$stdbuf_lib"
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
for lib in /usr"$libs"/libibverbs/librxe*.so; do
  cp -L "$lib" "$root/usr$libs/libibverbs/"
  with_libs "$lib"
done
install -m755 "$here/init" "$root/init"
install -m755 "$image"/*agent* "$root/usr/bin/"
with_libs "$image/verbs-agent"

# modules: those in modules.txt, and those that modprobe would load with them.
mkdir -p "$root/lib/modules/$release"
cp "$tree/lib/modules/$release"/modules.* "$root/lib/modules/$release/"
# Drivers of devices that no guest has are removed first, because depmod is then much faster.
(cd "$tree/lib/modules/$release/kernel" &&
  rm -rf sound drivers/{media,iio,usb,hid,hwmon,input,platform,scsi,comedi,ata,mtd,watchdog,video,misc,md,gpu,leds} drivers/i2c/[!a]* drivers/net/{wireless,phy,usb,can} &&
  find drivers/net/ethernet -name '*.ko*' ! -name 'igb.ko*' -delete)
depmod -b "$tree" "$release"
while read -r m; do
  case $m in '' | '#'*) continue ;; esac
  if ! modprobe -q -d "$tree" -S "$release" --show-depends "${m#\?}" >"$image/depends"; then
    [[ $m != \?* ]] || continue
    say "kernel $release has no module $m"
    exit 1
  fi
  awk '$1 == "insmod" {print $2}' "$image/depends"
done <"$here/modules.txt" | sort -u | while read -r ko; do
  install -D -m644 "$ko" "$root${ko#"$tree"}"
done
rm -f "$image/depends"
depmod -b "$root" "$release"

(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$image/initrd.gz"
cp "$tree/boot/vmlinuz-$release" "$image/vmlinuz"
echo "$release" >"$image/release"
rm -rf "$root"
echo "$stamp" >"$image/stamp"
echo "$image"
