// Package rxe implements a side of a conformance test with libibverbs and rxe of a Linux kernel,
// through the verbs agent (interop/vm/verbs) in the guest.
package rxe

import (
	"bufio"
	"encoding/hex"
	"fmt"
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

// reply is an answer of the agent. The keys are in order, because some are repeated.
type reply struct {
	keys, vals []string
	err        error // the first value that is not a number where one is expected
}

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

// call makes one call. A failed verb is a *verbs.Error with its errno; any other error is
// a fault of the test equipment.
func (c *client) call(name string, args ...arg) (*reply, error) {
	var b strings.Builder
	b.WriteString(name)
	for _, a := range args {
		b.WriteByte(' ')
		b.WriteString(a.String())
	}
	line := b.String()
	b.WriteByte('\n')
	c.conn.SetDeadline(time.Now().Add(patience))
	if _, err := c.conn.Write([]byte(b.String())); err != nil {
		return nil, fmt.Errorf("verbs agent: %s: %v", brief(line), err)
	}
	answer, err := c.in.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("verbs agent: %s: no answer: %v", brief(line), err)
	}
	words := strings.Fields(answer)
	if len(words) == 0 {
		return nil, fmt.Errorf("verbs agent: %s: empty answer", brief(line))
	}
	rest := words[1:]
	var errno int
	switch words[0] {
	case "ok":
	case "err":
		if len(rest) > 0 {
			errno, _ = strconv.Atoi(rest[0])
			rest = rest[1:]
		}
		if errno <= 0 {
			return nil, fmt.Errorf("verbs agent: %s: %q", brief(line), answer)
		}
	default:
		return nil, fmt.Errorf("verbs agent: %s: %s", brief(line), strings.TrimSpace(answer))
	}
	r := &reply{}
	for _, w := range rest {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			return nil, fmt.Errorf("verbs agent: %s: %q", brief(line), w)
		}
		r.keys, r.vals = append(r.keys, k), append(r.vals, v)
	}
	if errno != 0 {
		return r, &verbs.Error{Side: c.side, Call: name, Errno: syscall.Errno(errno), Posted: r.int("posted")}
	}
	return r, nil
}

// do makes a call without results.
func (c *client) do(name string, args ...arg) error {
	_, err := c.call(name, args...)
	return err
}

// made makes a call whose only result is a handle.
func (c *client) made(name string, args ...arg) (verbs.Handle, error) {
	r, err := c.call(name, args...)
	if err != nil {
		return 0, err
	}
	return r.handle(), r.err
}

// brief shortens a request for a message.
func brief(line string) string {
	if len(line) > 200 {
		return line[:200] + "…"
	}
	return line
}
