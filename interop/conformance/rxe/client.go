// Package rxe implements a side of a conformance test with libibverbs and rxe of a Linux kernel,
// through the verbs agent (interop/vm/verbs) in the guest.
package rxe

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/roce/interop/conformance/verbs"
)

// patience is the time limit for the answer to a call. The agent has a slightly shorter limit, and
// ends then.
const patience = 70 * time.Second

// client is a connection to the agent.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	side string
}

// arg is one argument of a request.
type arg struct {
	key string
	val any // an integer, a bool, []byte or a string
}

func (a arg) String() string {
	switch v := a.val.(type) {
	case string:
		return a.key + "=" + v
	case []byte:
		return a.key + "=" + hex.EncodeToString(v)
	case bool:
		if v {
			return a.key + "=1"
		}
		return a.key + "=0"
	case int:
		return a.key + "=" + strconv.Itoa(v)
	case uint64:
		return a.key + "=" + strconv.FormatUint(v, 10)
	}
	return fmt.Sprintf("%s=%d", a.key, a.val)
}

// reply is an answer of the agent. The keys are in order, because some are repeated. The values of a failed call are 0.
type reply struct {
	keys, vals []string
	err        error // of the call, or a value that is not a number where one is expected
}

// failure returns the error of the call and of the values that were read.
func (r *reply) failure() error { return r.err }

func (r *reply) text(key string) string {
	for i, k := range r.keys {
		if k == key {
			return r.vals[i]
		}
	}
	return ""
}

func (r *reply) num(key string) uint64 {
	s := r.text(key)
	if s == "" {
		return 0
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		r.err = err
	}
	return v
}

func (r *reply) int(key string) int { return int(r.num(key)) }

func (r *reply) handle() verbs.Handle { return verbs.Handle(r.num("handle")) }

func (r *reply) bytes(key string) []byte {
	b, err := hex.DecodeString(r.text(key))
	if err != nil {
		r.err = err
	}
	return b
}

// call makes one call. The error of a failed verb is a *verbs.Error with its errno; any other error is
// a fault of the test equipment.
func (c *client) call(name string, args ...arg) *reply {
	words := []string{name}
	for _, a := range args {
		words = append(words, a.String())
	}
	line := strings.Join(words, " ")
	fail := func(format string, a ...any) *reply {
		return &reply{err: fmt.Errorf("verbs agent: %s: %s", brief(line), fmt.Sprintf(format, a...))}
	}
	c.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c.conn, line+"\n"); err != nil {
		return fail("%v", err)
	}
	answer, err := c.in.ReadString('\n')
	if err != nil {
		return fail("no answer: %v", err)
	}
	verdict, rest, _ := strings.Cut(strings.TrimSpace(answer), " ")
	var errno int
	switch verdict {
	case "ok":
	case "err":
		var number string
		number, rest, _ = strings.Cut(rest, " ")
		if errno, _ = strconv.Atoi(number); errno <= 0 {
			return fail("%q", answer)
		}
	default:
		return fail("the answer is %q", answer)
	}
	r := &reply{}
	for w := range strings.FieldsSeq(rest) {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			return fail("%q", w)
		}
		r.keys, r.vals = append(r.keys, k), append(r.vals, v)
	}
	if errno != 0 {
		r.err = &verbs.Error{Side: c.side, Call: name, Errno: syscall.Errno(errno), Posted: r.int("posted")}
	}
	return r
}

// do makes a call without results.
func (c *client) do(name string, args ...arg) error { return c.call(name, args...).failure() }

// made makes a call whose only result is a handle.
func (c *client) made(name string, args ...arg) (verbs.Handle, error) {
	r := c.call(name, args...)
	return r.handle(), r.failure()
}

// brief shortens a request for a message.
func brief(line string) string {
	if len(line) > 200 {
		return line[:200] + "…"
	}
	return line
}
