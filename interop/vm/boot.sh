#!/bin/bash
# boot.sh IMAGE TAP SOCKET
#
# Boots the image of build.sh with eth0 on the existing TAP of the calling network
# namespace. SOCKET becomes a UNIX socket that leads to the guest's agent, and SOCKET.monitor
# one that leads to QEMU's monitor. The console goes to standard output. The script ends in exec of qemu: kill the process to stop the guest.
#
# Environment: VM_MTU VM_IP4 VM_IP6 VM_MAC VM_MEM (MiB) VM_CPUS VM_CPU VM_ACCEL. Emulation
# is the default because nested KVM is often missing or unreliable; VM_ACCEL=kvm uses KVM.
# VM_CARDS makes eth1 and so on: TAP,MAC,QUEUES for each. They use the kernel's DMA interface
# (iommu_platform), without which virtio_net has no zero copy for AF_XDP. VM_CARD=igb makes them cards of
# this model, whose queues do not depend on the tap's. VM_QEMU is another QEMU: see qemu.sh.
set -euo pipefail
image=${1:?usage: boot.sh IMAGE TAP SOCKET}
tap=${2:?}
socket=${3:?}
cards=()
for card in ${VM_CARDS:-}; do
  IFS=, read -r name mac queues <<<"$card"
  if [[ ${VM_CARD:-} == igb ]]; then
    # On a port of its own, because its virtual functions use the bus.
    cards+=(-netdev "tap,id=$name,ifname=$name,script=no,downscript=no" -device "pcie-root-port,id=port-$name,slot=${#cards[@]}"
      -device "igb,netdev=$name,mac=$mac,bus=port-$name,romfile=")
    continue
  fi
  cards+=(-netdev "tap,id=$name,ifname=$name,script=no,downscript=no,queues=$queues"
    -device "virtio-net-pci,netdev=$name,mac=$mac,mq=on,vectors=$((2 * queues + 2)),disable-legacy=on,iommu_platform=on,romfile=")
done
# What costs an emulated processor much and no case needs: security modules, audit, the kernel's tests of its ciphers.
lean="mitigations=off no_timer_check lsm=capability audit=0 cryptomgr.notests=1"
# With zero copy virtio_net takes the header of each frame, which should be zeros, from a wrong physical address. Without
# nokaslr it is another one in each boot, in some with other content. With it the address is behind the guest's memory, if
# that is at most a GiB, and QEMU reads zeros there.
if [[ -n ${VM_CARDS:-} && ${VM_CARD:-} != igb ]]; then
  [[ ${VM_MEM:-768} -le 1024 ]] || { echo "boot.sh: VM_MEM=$VM_MEM: with virtio_net cards at most 1024" >&2; exit 1; }
  lean+=" nokaslr"
fi
exec "${VM_QEMU:-qemu-system-x86_64}" -nodefaults -no-reboot -display none \
  -M q35 -accel "${VM_ACCEL:-tcg,thread=multi}" -cpu "${VM_CPU:-max}" -smp "${VM_CPUS:-1}" -m "${VM_MEM:-768}" \
  -kernel "$image/vmlinuz" -initrd "$image/initrd.gz" \
  -append "console=ttyS0 quiet panic=-1 $lean roce.mtu=${VM_MTU:-1500} roce.ip4=${VM_IP4:-10.77.0.2/24} roce.ip6=${VM_IP6:-fd77::2/64}" \
  -serial stdio -monitor "unix:$socket.monitor,server=on,wait=off" \
  -device virtio-serial-pci -chardev "socket,id=agent,path=$socket,server=on,wait=off" -device virtserialport,chardev=agent,name=roce.agent \
  -netdev "tap,id=n0,ifname=$tap,script=no,downscript=no" -device "virtio-net-pci,netdev=n0,mac=${VM_MAC:-52:54:00:77:00:02},romfile=" "${cards[@]}"
