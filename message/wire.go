package message

import (
	"cmp"
	"encoding/binary"
	"math"
	"strings"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/errs"
)

// hello is the private data of both halves of the handshake: four bytes of name
// and version, the number of posted receives, the largest message.
type hello struct {
	depth int
	limit int
}

const (
	magic    = "rmg\x01"
	helloLen = 4 + 4 + 4
)

func (h hello) append(b []byte) []byte {
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, uint32(h.depth))
	return binary.BigEndian.AppendUint32(b, uint32(h.limit))
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) < helloLen || string(b[:4]) != magic {
		return h, errs.New("handshake", syscall.EPROTO, "the peer speaks another protocol")
	}
	depth, limit := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if depth < 1 || depth > maxDepth || limit > maxMessage {
		return h, errs.New("handshake", syscall.EPROTO, "the peer takes %d messages of %d bytes", depth, limit)
	}
	return hello{int(depth), int(limit)}, nil
}

// The immediate of a SEND: the number of returned credits, and a flag for a
// message that only returns credits.
const (
	creditOnly = 1 << 31
	creditMask = creditOnly - 1
)

// Access has the rights of the peer on exported memory.
type Access uint8

const (
	Read   Access = 1 << iota // Conn.Read
	Write                     // Conn.Write
	Atomic                    // Conn.CompareSwap, Conn.FetchAdd

	ReadWrite = Read | Write
)

// rights returns the rights of the verbs for an Access.
func (a Access) rights() (r roce.Access) {
	for _, x := range [...]struct {
		a Access
		r roce.Access
	}{{Read, roce.RemoteRead}, {Write, roce.RemoteWrite | roce.LocalWrite}, {Atomic, roce.RemoteAtomic | roce.LocalWrite}} {
		if a&x.a != 0 {
			r |= x.r
		}
	}
	return r
}

func (a Access) String() string {
	var names []string
	for i, n := range [...]string{"read", "write", "atomic"} {
		if a&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return cmp.Or(strings.Join(names, "|"), "none")
}

// Token identifies exported memory. A program with the token can use the memory over the
// connection on which it was exported. Marshal the token with MarshalBinary to send it to
// the peer.
type Token struct {
	addr   uint64
	length uint64
	key    roce.RKey
	access Access
}

// TokenLen is the length of a marshaled [Token].
const TokenLen = 8 + 8 + 4 + 1

// Len returns the length of the memory in bytes.
func (t Token) Len() int { return int(t.length) }

// Access returns the rights of the peer.
func (t Token) Access() Access { return t.access }

// AppendBinary appends the [TokenLen] bytes of the token.
func (t Token) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(b, t.addr)
	b = binary.BigEndian.AppendUint64(b, t.length)
	b = binary.BigEndian.AppendUint32(b, uint32(t.key))
	return append(b, byte(t.access)), nil
}

// MarshalBinary returns the token as [TokenLen] bytes.
func (t Token) MarshalBinary() ([]byte, error) { return t.AppendBinary(nil) }

// UnmarshalBinary reads the output of MarshalBinary.
func (t *Token) UnmarshalBinary(b []byte) error {
	if len(b) != TokenLen {
		return errs.New("handshake", syscall.EINVAL, "a token has %d bytes, not %d", TokenLen, len(b))
	}
	u := Token{addr: binary.BigEndian.Uint64(b), length: binary.BigEndian.Uint64(b[8:]),
		key: roce.RKey(binary.BigEndian.Uint32(b[16:])), access: Access(b[20])}
	if u.length > math.MaxInt || u.addr+u.length < u.addr || u.access&^(ReadWrite|Atomic) != 0 {
		return errs.New("handshake", syscall.EINVAL, "not a token")
	}
	*t = u
	return nil
}

// check refuses accesses to which the peer's card would react by ending the
// connection.
func (t Token) check(need Access, off, n int) error {
	switch {
	case t.access&need != need:
		return errs.New("transfer", syscall.EACCES, "the memory is exported for %v, not %v", t.access, need)
	case off < 0 || n < 0 || uint64(off) > t.length || uint64(n) > t.length-uint64(off):
		return errs.New("transfer", syscall.EFAULT, "%d bytes at %d of %d", n, off, t.length)
	case need == Atomic && (t.addr+uint64(off))%8 != 0:
		return errs.New("transfer", syscall.EINVAL, "an atomic at %d, which is not aligned to 8 bytes", off)
	}
	return nil
}
