package netlab

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// DropOutput makes the kernel of the side drop all IP packets that its sockets send, as
// `nft add chain inet netlab output { type filter hook output priority 0; policy drop; }` does. The send
// fails with EPERM. ARP packets still leave. DropOutput skips the test if the kernel has no nftables.
func (s *Side) DropOutput(t testing.TB) {
	t.Helper()
	s.Do(t, func() {
		if err := addDropChain(); err != nil {
			t.Skipf("no firewall can be made: %v", err)
		}
	})
}

// nfMessage makes a netlink message for the netfilter subsystem.
func nfMessage(kind, flags int, family byte, resource uint16, attrs ...nl.NetlinkRequestData) []byte {
	r := nl.NewNetlinkRequest(kind, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, ResId: binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, resource))})
	for _, a := range attrs {
		r.AddData(a)
	}
	return r.Serialize()
}

func addDropChain() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const (
		nftables             = unix.NFNL_SUBSYS_NFTABLES
		inet, hookOutput     = 1, 3
		batchBegin, batchEnd = unix.NFNL_MSG_BATCH_BEGIN, unix.NFNL_MSG_BATCH_END
	)
	name, zero := nl.ZeroTerminated("netlab"), make([]byte, 4)
	hook := nl.NewRtAttr(unix.NFTA_CHAIN_HOOK|unix.NLA_F_NESTED, nil)
	hook.AddRtAttr(unix.NFTA_HOOK_HOOKNUM, []byte{0, 0, 0, hookOutput})
	hook.AddRtAttr(unix.NFTA_HOOK_PRIORITY, zero)
	const create = unix.NLM_F_CREATE | unix.NLM_F_ACK
	batch := slices.Concat(
		nfMessage(batchBegin, 0, 0, nftables),
		nfMessage(nftables<<8|unix.NFT_MSG_NEWTABLE, create, inet, 0, nl.NewRtAttr(unix.NFTA_TABLE_NAME, name)),
		nfMessage(nftables<<8|unix.NFT_MSG_NEWCHAIN, create, inet, 0, nl.NewRtAttr(unix.NFTA_CHAIN_TABLE, name), nl.NewRtAttr(unix.NFTA_CHAIN_NAME, name),
			hook, nl.NewRtAttr(unix.NFTA_CHAIN_POLICY, zero), nl.NewRtAttr(unix.NFTA_CHAIN_TYPE, nl.ZeroTerminated("filter"))),
		nfMessage(batchEnd, 0, 0, nftables))
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 8192)
	for range 2 { // table and chain
		n, _, err := unix.Recvfrom(fd, answer, 0)
		if err != nil {
			return err
		}
		if n < unix.SizeofNlMsghdr+4 {
			return fmt.Errorf("an answer of %d bytes", n)
		}
		if errno := -int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
			return fmt.Errorf("nftables: %w", unix.Errno(errno))
		}
	}
	return nil
}
