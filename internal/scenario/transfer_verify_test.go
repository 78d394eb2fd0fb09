package scenario_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/pcap"
	rules "github.com/goroce/roce/verify"
)

// TestVerifyCaptures: the rules find no failure in a capture of two devices, at any place
// between them and with any faults of the network on both sides of that place.
func TestVerifyCaptures(t *testing.T) {
	networks := map[string]fault.Config{"none": {}}
	for name, r := range map[string]fault.Rates{"loss": {Loss: 0.03}, "order": {Reorder: 0.03}, "doubles": {Dup: 0.03}, "all": {Loss: 0.02, Dup: 0.02, Reorder: 0.02}, "delay": {Delay: 0.05}} {
		networks[name] = fault.Config{Tx: r, Rx: r}
	}
	long := fault.Rates{Delay: 0.05, Loss: 0.01}
	networks["long"] = fault.Config{Tx: long, Rx: long, DelayTime: 30 * time.Millisecond}
	for _, addrs := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}} {
		for name, c := range networks {
			for place := range 3 {
				for seed := range uint64(2) {
					for _, r := range []roce.Recovery{roce.RecoverGoBack, roce.RecoverAll} {
						t.Run(fmt.Sprint(addrs[0], " ", name, " ", place, " ", seed, " ", r), func(t *testing.T) {
							c.Seed = 4 * seed
							judgeAt(t, place, overheard(t, addrs, c, r, place))
						})
					}
				}
			}
		}
	}
}

// overheard returns what passes a place while two devices talk: at the first device (0), between them (1), or at the second one (2).
// Between two places is a network with faults.
func overheard(t *testing.T, addrs [2]string, c fault.Config, r roce.Recovery, place int) (recs []pcap.Record) {
	var mu sync.Mutex
	tap := func(p link.Port) link.Port {
		return ok(pcap.Wrap(p, nil, pcap.Options{Seen: func(r *pcap.Record) {
			mu.Lock()
			defer mu.Unlock()
			kept := *r
			kept.Data, kept.Number = bytes.Clone(r.Data), len(recs)+1
			recs = append(recs, kept)
		}}))(t)
	}
	faulty := func(p link.Port) link.Port {
		c.Seed++
		return ok(fault.Wrap(p, c))(t)
	}
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		var devs [2]*roce.Device
		for i := range devs {
			config := n.config(addrs[i])
			p := faulty(config.Ports[0])
			switch {
			case place == 1 && i == 0:
				p = faulty(tap(p))
			case place == 2*i:
				p = tap(p)
			}
			config.Ports[0], config.Recovery = p, r
			devs[i] = n.open(config)
		}
		talk(t, devs)
		for _, d := range devs {
			check(t, d.Close())
		}
	})
	return recs
}

// judgeAt checks a capture with each configuration of the rules that is true of its place.
func judgeAt(t *testing.T, place int, recs []pcap.Record) {
	cfgs := map[string]rules.Config{"nothing": {}, "complete": {Complete: true}}
	if place != 1 {
		cfgs["directions"] = rules.Config{Directions: true}
	}
	for said, cfg := range cfgs {
		v := ok(rules.New(cfg))(t)
		for i := range recs {
			rec := recs[i]
			if !cfg.Directions {
				rec.Direction = pcap.Unknown
			}
			v.Add(0, &rec)
		}
		r := v.Done()
		if r.Packets < 150 || len(r.Halves) < 2 {
			t.Errorf("%d packets of %d connections were judged", r.Packets, len(r.Halves))
		}
		for i := range r.Findings {
			if f := &r.Findings[i]; f.Failure() {
				t.Errorf("said: %s; found: %s", said, f)
			}
		}
	}
}

// talk makes a connection and uses it.
func talk(t *testing.T, devs [2]*roce.Device) {
	ctx := within(t, time.Hour)
	l := ok(devs[1].Listen(ctx, ":7471", roce.ListenConfig{}))(t)
	var wg sync.WaitGroup
	var other *roce.Conn
	wg.Go(func() {
		r, err := l.Accept(ctx)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		if other, err = r.Accept(ctx, roce.AcceptConfig{}); err != nil {
			t.Errorf("accept: %v", err)
		}
	})
	addr := "10.0.0.2:7471"
	if devs[1].GIDs()[0].Addr().Is6() {
		addr = "[fd00::2]:7471"
	}
	c := ok(devs[0].Dial(ctx, addr, roce.DialConfig{}))(t)
	wg.Wait()
	if other == nil {
		return
	}
	conns := [2]*roce.Conn{c, other}
	var mrs [2]*roce.MR
	for i, c := range conns {
		mrs[i] = ok(c.QP().PD().RegMR(make([]byte, 65536), allRights))(t)
		for range 16 {
			check(t, c.QP().PostRecv(&roce.RecvWR{SG: []roce.SGE{mrs[i].SGE(0, 20000)}}))
		}
	}
	for i, c := range conns {
		wg.Go(func() {
			m, o := mrs[i], mrs[1-i]
			for k := range 40 {
				wr := &roce.SendWR{Flags: roce.Signaled, SG: []roce.SGE{m.SGE(0, 100+3000*(k%5))}, RemoteAddr: o.Addr(), RKey: o.RKey()}
				if wr.Opcode = []roce.Opcode{roce.Write, roce.Read, roce.Send, roce.FetchAdd, roce.Write}[k%5]; wr.Opcode == roce.FetchAdd {
					wr.SG = []roce.SGE{m.SGE(0, 8)}
				}
				if err := c.QP().PostSend(wr); err != nil {
					t.Errorf("post: %v", err)
					return
				}
				if k%4 == 3 {
					drain(t, ctx, c, 4)
				}
			}
		})
	}
	wg.Wait()
	for _, c := range conns {
		wg.Go(func() { c.Close() })
	}
	wg.Wait()
}

// drain takes completions of sends.
func drain(t *testing.T, ctx context.Context, c *roce.Conn, n int) {
	for n > 0 {
		wc, err := c.QP().SendCQ().Next(ctx)
		if err != nil || wc.Status != cq.Success {
			t.Errorf("completion %v %v", wc, err)
			return
		}
		n--
	}
}
