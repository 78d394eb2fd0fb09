package nic

import (
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/ids"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/mono"
)

// MaxQP is the number of queue pairs that a device can have.
const MaxQP = 1 << 20

// A freed number of a queue pair or shared receive queue is not used again for NumberRest,
// because packets to the old one may still arrive. NumberRest is longer than any timewait
// of the connection manager (69 s). The device remembers at most the last MaxResting freed
// numbers.
const (
	NumberRest = 70 * time.Second
	MaxResting = 1 << 16
)

// demux finds the queue pair of a packet. QPNs are random: a stranger that knows one cannot
// guess the next. The residue class of a QPN determines its shard and, on an address that
// processes share, its process. So a network card or the kernel can steer packets by the QPN.
type demux struct {
	qps *ids.Table[QP]
	classes
}

// classes are the residue classes of the queue pair numbers of each shard.
type classes struct {
	modulus  uint32
	residues []uint32 // of each shard
}

// classesOf assigns residue classes to the shards of a device: by the number of shards,
// or by its slots on an address that processes share.
func classesOf(shards int, shared share.Shared) classes {
	c := classes{modulus: uint32(shards)}
	if shared != nil {
		c.modulus = share.Slots
		for _, s := range shared.Slots() {
			c.residues = append(c.residues, uint32(s))
		}
		return c
	}
	for i := range shards {
		c.residues = append(c.residues, uint32(i))
	}
	return c
}

func (d *demux) init(rnd func() uint64, c classes) {
	*d = demux{ids.NewTable[QP](ids.Config{Max: MaxQP, Rand: rnd, Rest: MaxResting, Reserved: reservedQPN}), c}
}

// reservedQPN reports whether queue pairs of programs cannot have the number n: 0 and 1
// are the management queue pairs, the last one is multicast; as with rxe the first
// ordinary number is 0x11.
func reservedQPN(n uint32) bool { return n <= 0x10 || bth.QPN(n) == bth.QPNMulticast }

// find returns the queue pair with a number, or nil.
func (d *demux) find(n bth.QPN) *QP { return d.qps.Find(uint32(n)) }

// add gives a queue pair a number.
func (d *demux) add(now mono.Time, q *QP) (bth.QPN, error) {
	if d.qps.Full() {
		return 0, errs.New("create qp", syscall.ENOMEM, "the device has %d queue pairs, the limit; close some first", d.qps.Len())
	}
	n, ok := d.qps.Draw(now, q, ids.Part{Residue: d.residues[q.shard.index], Class: d.modulus})
	if !ok {
		return 0, errs.New("create qp", syscall.ENOMEM, "no queue pair number is left for shard %d of %d; use another shard, or close some first", q.shard.index, len(d.residues))
	}
	return bth.QPN(n), nil
}

// remove frees the number of a queue pair.
func (d *demux) remove(now mono.Time, n bth.QPN) { d.qps.Free(uint32(n), now.Add(NumberRest)) }

// all lists the queue pairs.
func (d *demux) all() (out []*QP) {
	d.qps.All(func(q *QP) bool {
		out = append(out, q)
		return true
	})
	return out
}
