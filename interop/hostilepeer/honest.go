package hostilepeer

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

// patience is the time limit for one round of the honest connection.
const patience = 20 * time.Second

// transfer is one round of the honest connection: a SEND, a WRITE, a READ and an atomic,
// whose data is compared.
func (r *rig) transfer() error {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	near, far := r.near, r.far
	for _, c := range []*connection{near, far} {
		select {
		case <-c.conn.Done():
			return fmt.Errorf("the honest connection was ended: %w", c.conn.Err())
		default:
		}
	}
	r.rounds++
	n := uint64(r.rounds)
	const size = 1500 // two packets
	sent := far.area.buf[:size]
	for i := range sent {
		sent[i] = byte(uint64(i)*n + n)
	}
	check := func(c *connection, id uint64, bytes int) error {
		wc, err := c.cq.Next(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("the honest connection waits for completion %d: %w", id, err)
		case wc.ID != id || wc.Status != cq.Success:
			return fmt.Errorf("the honest connection: completion %d, %v, want %d", wc.ID, wc.Status, id)
		case bytes > 0 && int(wc.ByteLen) != bytes:
			return fmt.Errorf("the honest connection received %d bytes, want %d", wc.ByteLen, bytes)
		}
		return nil
	}
	// The receive takes the first part of the area, the WRITE the second.
	if err := near.conn.QP().PostRecv(&roce.RecvWR{ID: n, SG: []roce.SGE{near.area.mr.SGE(0, size)}}); err != nil {
		return err
	}
	remote, key := near.area.mr.Addr(), near.area.mr.RKey()
	for i, wr := range []roce.SendWR{
		{Opcode: roce.Send, SG: []roce.SGE{far.area.mr.SGE(0, size)}},
		{Opcode: roce.Write, SG: []roce.SGE{far.area.mr.SGE(0, size)}, RemoteAddr: remote + 2048, RKey: key},
		{Opcode: roce.Read, SG: []roce.SGE{far.area.mr.SGE(2048, size)}, RemoteAddr: remote + 2048, RKey: key},
		{Opcode: roce.FetchAdd, SG: []roce.SGE{far.area.mr.SGE(4096, 8)}, RemoteAddr: remote + 4096, RKey: key, CompareAdd: 1},
	} {
		wr.ID, wr.Flags = n<<8+uint64(i), roce.Signaled
		if err := far.conn.QP().PostSend(&wr); err != nil {
			return fmt.Errorf("the honest connection: %w", err)
		}
	}
	if err := check(near, n, size); err != nil {
		return err
	}
	for i := range uint64(4) {
		if err := check(far, n<<8+i, 0); err != nil {
			return err
		}
	}
	if !bytes.Equal(near.area.buf[:size], sent) || !bytes.Equal(near.area.buf[2048:2048+size], sent) || !bytes.Equal(far.area.buf[2048:2048+size], sent) {
		return fmt.Errorf("the honest connection: wrong data in round %d", n)
	}
	count := binary.NativeEndian.Uint64(near.area.buf[4096:])
	if before := binary.NativeEndian.Uint64(far.area.buf[4096:]); count != before+1 {
		return fmt.Errorf("the honest connection: FETCH_ADD found %#x and left %#x", before, count)
	}
	// The memory must keep the data of this round from now on.
	copy(near.area.was, near.area.all)
	near.area.keep = true
	return nil
}
