//go:build linux

package sharing

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/interop/child"
)

// burstQP is a queue pair of a member for bursts of datagrams.
type burstQP struct {
	qp   *roce.QP
	room *roce.MR
}

const (
	burstQKey = 0x22222222
	burstSize = 1000
	burst     = 5000 // datagrams: more bytes than the queue between two processes holds
	bursts    = 3    // at the same time, so that datagrams arrive faster than one process reads them
)

func (m *Member) openBurst() error {
	pd := m.dev.AllocPD()
	queue, err := m.dev.CreateCQ(2 * burst * bursts)
	if err != nil {
		return err
	}
	b := &burstQP{}
	caps := roce.Caps{MaxSendWR: burst, MaxRecvWR: burst * bursts, MaxSendSGE: 1, MaxRecvSGE: 1}
	if b.qp, err = pd.CreateQP(roce.QPConfig{Type: roce.UD, SendCQ: queue, Caps: caps}); err != nil {
		return err
	}
	if b.room, err = pd.RegMR(make([]byte, roce.GRHLen+burstSize), roce.LocalWrite); err != nil {
		return err
	}
	m.burst = b
	return b.qp.Init(0, burstQKey)
}

// Gather prepares a member for receiving bursts, and returns the number of its queue pair.
func (m *Member) Gather(_ child.None, r *roce.QPN) error {
	if err := m.openBurst(); err != nil {
		return err
	}
	for range burst * bursts {
		if err := m.burst.qp.PostRecv(&roce.RecvWR{SG: []roce.SGE{m.burst.room.SGE(0, roce.GRHLen+burstSize)}}); err != nil {
			return err
		}
	}
	*r = m.burst.qp.Num()
	return m.burst.qp.Ready(0)
}

// Gathered waits until all datagrams have arrived, or none has for some time, and returns their number.
func (m *Member) Gathered(_ child.None, r *int) error {
	for *r < burst*bursts {
		ctx, cancel := context.WithTimeout(context.Background(), patience/4)
		wc, err := m.burst.qp.RecvCQ().Next(ctx)
		cancel()
		if err != nil {
			return nil
		}
		if wc.Status != roce.StatusSuccess {
			return fmt.Errorf("%v", wc.Status)
		}
		*r++
	}
	return nil
}

// Burst sends a burst to all queue pairs, one datagram to each in turn, and waits until it is sent.
func (m *Member) Burst(to []roce.QPN, r *time.Duration) error {
	if err := m.openBurst(); err != nil {
		return err
	}
	b := m.burst
	if err := b.qp.Ready(0); err != nil {
		return err
	}
	ctx := context.Background()
	ah, err := m.dev.CreateAH(ctx, roce.AHAttr{DGID: m.dev.GIDs()[0]})
	if err != nil {
		return err
	}
	began := time.Now()
	for sent, done := 0, 0; done < burst*len(to); {
		for ; sent < burst*len(to) && sent-done < burst; sent++ {
			wr := roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{b.room.SGE(0, burstSize)}, AH: ah, RemoteQPN: to[sent%len(to)], RemoteQKey: burstQKey}
			if err := b.qp.PostSend(&wr); err != nil {
				return err
			}
		}
		wc, err := b.qp.SendCQ().Next(ctx)
		if err != nil {
			return err
		}
		if wc.Status != roce.StatusSuccess {
			return fmt.Errorf("%v", wc.Status)
		}
		done++
	}
	*r = time.Since(began)
	return nil
}

// No datagram of a burst between processes on one address is lost, although a burst is larger than the
// queue between them. A stopped process loses its own datagrams, and delays those of others only shortly.
// The same would happen to a process that gets no processor for so long, so the test does not run in
// parallel with others.
func TestBurst(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprintf("stopped %v", stopped), func(t *testing.T) {
			all := loopback().members(t, bursts+3)
			senders, receivers := all[:bursts], all[bursts:]
			to := make([]roce.QPN, len(receivers))
			for i, p := range receivers {
				p.call("Gather", nil, &to[i])
			}
			if stopped {
				receivers[2].signal(syscall.SIGSTOP)
			}
			gathered := make([]int, len(receivers))
			if stopped {
				receivers = receivers[:2]
			}
			together(senders, func(p *process) {
				var took time.Duration
				p.call("Burst", to, &took)
				t.Logf("sent after %v", took)
			})
			for i, p := range receivers {
				if p.call("Gathered", nil, &gathered[i]); gathered[i] != burst*bursts {
					t.Errorf("process %d has received %d of %d datagrams", i, gathered[i], burst*bursts)
				}
			}
		})
	}
}
