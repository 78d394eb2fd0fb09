package share

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/errs"
)

// protocol is the version of the messages and of the board. Processes with different versions
// do not share an address.
const protocol = 2

// op is the kind of a message.
type op string

const (
	opJoin   op = "join"   // process: requests slots; keeper: answers with slots and descriptors
	opReady  op = "ready"  // process: has received them
	opBack   op = "back"   // process: has slots from an earlier keeper
	opClaim  op = "claim"  // process: requests to listen for a service; keeper: grants it
	opDrop   op = "drop"   // process: stops listening
	opList   op = "list"   // any process: requests the list of processes
	opReport op = "report" // keeper: requests a report
	opRefuse op = "refuse" // keeper: refuses, because of Error
)

// message is a message between a keeper and a process, in JSON, one in a packet. An answer has
// the Seq of its question.
type message struct {
	Op       op            `json:"op"`
	Seq      uint64        `json:"seq,omitempty"`
	Protocol int           `json:"protocol,omitempty"`
	Version  string        `json:"version,omitempty"`
	Want     int           `json:"want,omitempty"`
	Slots    []Slot        `json:"slots,omitempty"`
	Service  uint64        `json:"service,omitempty"`
	Notes    []string      `json:"notes,omitempty"`
	Detail   bool          `json:"detail,omitempty"` // of a list and a report: with the queue pairs. Older versions ignore it
	Report   *Report       `json:"report,omitempty"`
	Members  []Member      `json:"members,omitempty"`
	Error    string        `json:"error,omitempty"`
	Errno    syscall.Errno `json:"errno,omitempty"`
}

// refusal returns the answer that refuses a request because of an error.
func refusal(err error) message {
	m := message{Op: opRefuse, Error: err.Error(), Errno: syscall.EIO}
	var e *errs.Error
	if errors.As(err, &e) {
		m.Error = e.Detail
	}
	errors.As(err, &m.Errno)
	return m
}

// err returns the error of an answer.
func (m *message) err() error {
	if m.Op != opRefuse {
		return nil
	}
	return errs.New("share", cmp.Or(m.Errno, syscall.EPROTO), "%s", m.Error)
}

const (
	maxMessage = 128 << 10
	maxFiles   = 253 // of one message (SCM_MAX_FD)
)

// line is one end of a connection between a process and the keeper.
type line struct {
	*net.UnixConn
	writing sync.Mutex
	peer    unix.Ucred // the process at the other end
	room    []byte
	oob     []byte
}

// newLine returns the line of a connection. It asks the kernel for the process at the
// other end.
func newLine(c *net.UnixConn) (*line, error) {
	l := &line{UnixConn: c, room: make([]byte, maxMessage), oob: make([]byte, unix.CmsgSpace(4*maxFiles))}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, failed
	}
	l.peer = *cred
	return l, nil
}

// accept accepts connections until the listener is closed, and calls serve for each on a goroutine of running.
func accept(from *net.UnixListener, running *sync.WaitGroup, serve func(*line)) {
	for {
		c, err := from.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, for instance
			time.Sleep(10 * time.Millisecond)
			continue
		}
		running.Go(func() {
			defer c.Close()
			if l, err := newLine(c); err == nil {
				serve(l)
			}
		})
	}
}

// send sends a message and descriptors. Other goroutines may send, too. A peer that reads
// nothing for sendTime has failed.
func (l *line) send(m message, files ...int) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	l.SetWriteDeadline(time.Now().Add(sendTime))
	_, _, err = l.WriteMsgUnix(b, oob, nil)
	return err
}

// receive waits for a message and the descriptors that come with it, which the caller closes.
func (l *line) receive() (m message, files []int, err error) {
	n, k, flags, _, err := l.ReadMsgUnix(l.room, l.oob)
	files = rights(l.oob[:k]) // also with an empty message, which is io.EOF
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		closeAll(files)
		return m, nil, err
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(files)
		if flags&unix.MSG_CTRUNC != 0 {
			return m, nil, unix.EMFILE // descriptors are missing
		}
		return m, nil, unix.EMSGSIZE
	}
	if err = json.Unmarshal(l.room[:n], &m); err != nil {
		closeAll(files)
		return m, nil, errors.Join(unix.EPROTO, err)
	}
	return m, files, nil
}

// receiveText is receive for messages that come without descriptors. It closes descriptors that a
// hostile process sends.
func (l *line) receiveText() (message, error) {
	m, files, err := l.receive()
	closeAll(files)
	return m, err
}

// rights returns the descriptors in control messages.
func rights(oob []byte) (files []int) {
	messages, _ := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			files = append(files, got...)
		}
	}
	return files
}

func closeAll(files []int) {
	for _, fd := range files {
		unix.Close(fd)
	}
}

// moduleVersion is the version of the module that this program is built with.
func moduleVersion() string {
	const path = "github.com/goroce/roce"
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Path == path {
			return info.Main.Version
		}
		for _, d := range info.Deps {
			if d.Path == path {
				return d.Version
			}
		}
	}
	return "(unknown)"
}

// self returns the IDs of this process.
func self() unix.Ucred {
	return unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}
}
