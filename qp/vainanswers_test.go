package qp_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// TestVainAnswers: answers without progress, in series of all kinds, do not make a requester wait longer for the
// oldest request than the standard lets each timer run, nor send without bound. It uses up its retries, and the work
// request fails.
func TestVainAnswers(t *testing.T) {
	for _, code := range []uint8{8, 12} {
		for _, retries := range []uint8{none, 1, 3, 7} {
			for _, repair := range []bool{false, true} {
				t.Run(fmt.Sprintf("timeout %d, retries %d, repairs %v", code, retries, repair), func(t *testing.T) {
					for seed := range uint64(2) {
						rng := rand.New(rand.NewPCG(seed, 7))
						b, _, m := client(t, pairConfig{timeout: code, retry: retries, repair: repair})
						b.timed(send(m, 1), s0)
						first := s0.Add(1)
						const packets = 24
						for _, wr := range []qp.SendWR{read(m, 8192), send(m, 8192), read(m, 8192)} {
							b.post(wr)
						}
						waits := time.Duration(retries) + 1
						if retries == none {
							waits = 1
						}
						start, timer := b.net.now, bth.AckTimeout(code)
						every := timer / 50
						end := start.Add((4*timer + every) * waits)
						for b.State() != qp.Err {
							if b.net.now > end {
								t.Fatalf("seed %d: no end after %v, %d retries of %v", seed, b.net.now.Sub(start), waits-1, timer)
							}
							for range rng.IntN(12) {
								psn := first.Add(1 + rng.IntN(packets-1)) // all but the oldest
								switch rng.IntN(6) {
								case 0:
									b.inject(ack(psn))
								case 1:
									b.inject(ack(first.Add(-1 - rng.IntN(3))))
								case 2:
									b.inject(nak(bth.NAKSequence, psn))
								case 3:
									b.inject(nak(bth.NAKSequence, first))
								case 4:
									b.inject(packet{op: bth.RCReadResponseMiddle, psn: first.Add(1 + rng.IntN(6)), payload: make([]byte, 1024)})
								case 5:
									b.inject(packet{op: bth.RCReadResponseMiddle, psn: first.Add(-1 - rng.IntN(3)), payload: make([]byte, 1024)})
								}
								if n := len(b.sent()); n > packets {
									t.Fatalf("seed %d: %d packets for one answer", seed, n)
								}
							}
							b.after(time.Duration(rng.Int64N(int64(every))) + 1)
							if b.NextTimeout() <= b.net.now {
								b.HandleTimeout(b.net.now)
								b.collect()
								b.sent()
							}
						}
						if wcs := drain(b.node.send); len(wcs) == 0 || wcs[0].Status != cq.RetryExcErr {
							t.Fatalf("seed %d: %v", seed, wcs)
						}
					}
				})
			}
		}
	}
}
