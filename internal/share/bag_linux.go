package share

import (
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// bag is one descriptor that keeps many files open: they are in the receive queue of a Unix
// socket (SCM_RIGHTS). All processes of an address hold the bag, so the sockets in it outlive
// each process, and a process needs no descriptor for each of them.
type bag struct{ fd int }

// newBag makes a bag of files. The caller still owns their descriptors.
func newBag(files []int) (bag, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return bag{-1}, err
	}
	defer unix.Close(pair[0])
	// The name is for the library for C: in the child of a fork it recognizes the bag, and closes it.
	if err := unix.Bind(pair[1], &unix.SockaddrUnix{Name: fmt.Sprintf("@goroce bag/%016x", rand.Uint64())}); err != nil {
		unix.Close(pair[1])
		return bag{-1}, err
	}
	if err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(files...), nil, 0); err != nil {
		unix.Close(pair[1])
		return bag{-1}, err
	}
	return bag{pair[1]}, nil
}

// open returns new descriptors of the files first to first+n-1. The files stay in the bag.
func (b bag) open(first, n int) (files []int, err error) {
	var data [1]byte
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	_, k, flags, _, err := unix.Recvmsg(b.fd, data[:], oob, unix.MSG_PEEK|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	all := rights(oob[:k])
	if flags&unix.MSG_CTRUNC != 0 || first+n > len(all) {
		closeAll(all)
		if flags&unix.MSG_CTRUNC != 0 {
			return nil, unix.EMFILE
		}
		return nil, unix.EPROTO
	}
	for i, fd := range all {
		if i < first || i >= first+n {
			unix.Close(fd)
		}
	}
	return all[first : first+n], nil
}
