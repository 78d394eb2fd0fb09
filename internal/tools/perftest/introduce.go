package perftest

import (
	"io"

	"github.com/goroce/roce/bth"
)

// Introduce does the exchange over TCP before a bandwidth test, for an end that is not a queue pair of this stack. It negotiates, swaps
// the addresses, and confirms that both ends are connected. twoSided says that the messages of the test are SENDs. Introduce returns the
// peer's address and the path MTU.
func Introduce(conn io.ReadWriter, server, twoSided bool, mine Dest, mtu bth.MTU) (Dest, bth.MTU, error) {
	x := &session{ReadWriter: conn, server: server}
	t, err := x.negotiate(mtu)
	if err != nil {
		return Dest{}, 0, err
	}
	theirs, err := x.handshake(mine)
	if err != nil {
		return Dest{}, 0, err
	}
	more := 2 // once for the queue pair, and once more
	if twoSided {
		more++ // receives are posted
	}
	for range more {
		if _, err := x.handshake(mine); err != nil {
			return Dest{}, 0, err
		}
	}
	return theirs, t.mtu, nil
}
