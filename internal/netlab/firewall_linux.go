package netlab

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// DropOutput makes the kernel of the side drop all IP packets that its sockets send, as
// `nft add chain inet netlab output { type filter hook output priority 0; policy drop; }`
// does: the socket is told EPERM. ARP is not IP. It skips the test if the kernel has no
// nftables.
func (s *Side) DropOutput(t testing.TB) {
	t.Helper()
	s.Do(t, func() {
		if err := addDropChain(); err != nil {
			t.Skipf("no firewall can be made: %v", err)
		}
	})
}

// nfMessage makes a netlink message for the netfilter subsystem.
func nfMessage(typ, flags uint16, family byte, resource uint16, attrs ...[]byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, 256)
	b = append(b, family, 0)
	b = binary.BigEndian.AppendUint16(b, resource)
	for _, a := range attrs {
		b = append(b, a...)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], typ)
	binary.NativeEndian.PutUint16(b[6:], flags|unix.NLM_F_REQUEST)
	return b
}

// nfAttr makes an attribute, padded.
func nfAttr(typ uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	return append(b, make([]byte, -len(b)&3)...)
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
	name := []byte("netlab\x00")
	hook := append(nfAttr(unix.NFTA_HOOK_HOOKNUM, 0, 0, 0, hookOutput), nfAttr(unix.NFTA_HOOK_PRIORITY, 0, 0, 0, 0)...)
	create := uint16(unix.NLM_F_CREATE | unix.NLM_F_ACK)
	var batch []byte
	for _, m := range [][]byte{
		nfMessage(batchBegin, 0, 0, nftables),
		nfMessage(nftables<<8|unix.NFT_MSG_NEWTABLE, create, inet, 0, nfAttr(unix.NFTA_TABLE_NAME, name...)),
		nfMessage(nftables<<8|unix.NFT_MSG_NEWCHAIN, create, inet, 0, nfAttr(unix.NFTA_CHAIN_TABLE, name...), nfAttr(unix.NFTA_CHAIN_NAME, name...),
			nfAttr(unix.NFTA_CHAIN_HOOK|unix.NLA_F_NESTED, hook...), nfAttr(unix.NFTA_CHAIN_POLICY, 0, 0, 0, 0), nfAttr(unix.NFTA_CHAIN_TYPE, []byte("filter\x00")...)),
		nfMessage(batchEnd, 0, 0, nftables),
	} {
		batch = append(batch, m...)
	}
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
