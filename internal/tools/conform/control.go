package conform

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/goroce/roce"
)

// DefaultPort is the port of the control connection, and of the connection manager at the same peer.
const DefaultPort = 18514

// protocolVersion changes when an older peer would misunderstand the protocol.
const protocolVersion = 1

// maxLine is the maximal length of a message on the control connection, in bytes.
const maxLine = 64 << 10

// The control connection carries lines of JSON: a command, and the reply to it. The names of the fields are the protocol, which docs/conform.md describes.

// command is a message from the tester to the peer.
type command struct {
	Do string `json:"do"` // one of the keys of commands
	QP int    `json:"qp,omitempty"`

	Spec  *spec     `json:"spec,omitempty"`
	Peer  *address  `json:"peer,omitempty"`
	Terms *terms    `json:"terms,omitempty"`
	Work  *work     `json:"work,omitempty"`
	At    int       `json:"at,omitempty"`
	Size  int       `json:"size,omitempty"`
	Step  int       `json:"step,omitempty"`
	Count int       `json:"count,omitempty"`
	Seed  uint64    `json:"seed,omitempty"`
	Queue queueName `json:"queue,omitempty"`
	MS    int       `json:"ms,omitempty"`
	Addr  string    `json:"addr,omitempty"` // of a listener of the tester

	Target *targetSpec `json:"target,omitempty"`
	Op     string      `json:"op,omitempty"`
}

// reply is the answer to a command. Error is empty if the command succeeded.
type reply struct {
	Error    string            `json:"error,omitempty"`
	Hello    *hello            `json:"hello,omitempty"`
	QP       int               `json:"qp,omitempty"`
	Address  *address          `json:"address,omitempty"`
	Token    string            `json:"token,omitempty"`
	Done     []done            `json:"done,omitempty"`
	Sum      string            `json:"sum,omitempty"`
	Bytes    []byte            `json:"bytes,omitempty"`
	Counters map[string]uint64 `json:"counters,omitempty"`
	Target   *targetState      `json:"target,omitempty"`
}

// hello describes the peer.
type hello struct {
	Version  int      `json:"version"`
	Software string   `json:"software"`
	Addrs    []string `json:"addresses"`
	MTU      int      `json:"mtu"`
	Services []string `json:"services"` // keys of services
	CMPort   int      `json:"cm_port,omitempty"`
}

// spec describes a queue pair with its memory. The other end gets all access rights.
type spec struct {
	Type   string `json:"type"` // rc, uc or ud
	SRQ    bool   `json:"srq,omitempty"`
	CM     bool   `json:"cm,omitempty"` // the connection manager connects it
	Memory int    `json:"memory"`
	Depth  int    `json:"depth"` // of each queue
}

// address has everything that the other end needs to use a queue pair.
type address struct {
	GID    string `json:"gid"`
	QPN    uint32 `json:"qpn"`
	PSN    uint32 `json:"psn"`
	Addr   uint64 `json:"addr"`
	RKey   uint32 `json:"rkey"`
	Length int    `json:"length"`
}

// terms are the parameters of a connection.
type terms struct {
	MTU          int   `json:"mtu"`
	Timeout      uint8 `json:"timeout"`
	Retries      uint8 `json:"retries"`
	RNRRetries   uint8 `json:"rnr_retries"`
	MinRNRTimer  uint8 `json:"min_rnr_timer"`
	Reads        uint8 `json:"reads"`
	TrafficClass uint8 `json:"traffic_class,omitempty"`
}

// work is a number of equal, signaled work requests. At is an offset in the memory of the end that posts them, Far in that of the other.
type work struct {
	Op      string `json:"op"` // a key of opcodes
	At      int    `json:"at"`
	Size    int    `json:"size"`
	Step    int    `json:"step,omitempty"` // from one request to the next
	Far     int    `json:"far,omitempty"`
	FarStep int    `json:"far_step,omitempty"`
	Count   int    `json:"count"`
	Imm     uint32 `json:"imm,omitempty"`
	Add     uint64 `json:"add,omitempty"` // the addend, or the value to compare with
	Swap    uint64 `json:"swap,omitempty"`
}

// done is a completion.
type done struct {
	Status string `json:"status"` // name of enum ibv_wc_status without IBV_WC_
	Bytes  int    `json:"bytes"`
	Imm    uint32 `json:"imm,omitempty"`
	HasImm bool   `json:"has_imm,omitempty"`
}

// queueName names the completion queue for sends, or that for receives.
type queueName string

const (
	sends    queueName = "send"
	receives queueName = "recv"
)

// Statuses that workloads expect.
var (
	success = roce.StatusSuccess.String()
	refused = roce.StatusRemAccessErr.String()
)

// The kinds of operations, by their names in the protocol.
var opcodes = map[string]roce.Opcode{
	"send": roce.Send, "send_imm": roce.SendImm, "write": roce.Write, "write_imm": roce.WriteImm, "read": roce.Read,
	"compare_swap": roce.CompareSwap, "fetch_add": roce.FetchAdd,
	"atomic_write": roce.AtomicWrite,
}

// The services, by their names in the protocol.
var services = map[string]roce.QPType{"rc": roce.RC, "uc": roce.UC, "ud": roce.UD}

// wire is one end of a control connection.
type wire struct {
	in  *bufio.Reader
	out io.Writer
}

func newWire(c io.ReadWriter) *wire { return &wire{bufio.NewReaderSize(c, maxLine), c} }

// commandError says that a line is not a message. The connection is then closed.
type commandError struct{ error }

// Unwrap returns the cause.
func (e *commandError) Unwrap() error { return e.error }

var errLongLine = &commandError{fmt.Errorf("a message of more than %d bytes", maxLine)}

// read reads a message into v.
func (w *wire) read(v any) error {
	line, err := w.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return errLongLine
	case err != nil:
		return err
	}
	if err := json.Unmarshal(line, v); err != nil {
		return &commandError{fmt.Errorf("a message that is none: %w", err)}
	}
	return nil
}

// write sends a message.
func (w *wire) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.out.Write(append(b, '\n'))
	return err
}
