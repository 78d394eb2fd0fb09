package top

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/internal/share"
)

// told returns a list with one process that reports queue pairs.
func told(clock time.Duration, queues ...share.QueuePair) []share.Address {
	return []share.Address{{Key: "udp 10.0.0.1", Members: []share.Member{{PID: os.Getpid(), Version: "v1", Keeper: true,
		Report: &share.Report{QueuePairs: len(queues), Queues: queues, Clock: clock}}}}}
}

// stackOf returns a source of samples that gets the lists one after the other.
func stackOf(lists ...[]share.Address) *Stack {
	return &Stack{list: func(detail bool) (next []share.Address, err error) {
		next, lists = lists[0], lists[1:]
		return next, nil
	}}
}

// The rates of queue pairs are computed from PSNs and counters, which wrap, and from the process's own clock.
func TestStackRates(t *testing.T) {
	a := share.QueuePair{QPN: 0x12, DestQPN: 0x34, Type: "RC", State: "RTS", Own: netip.MustParseAddr("10.0.0.1"), Peer: netip.MustParseAddr("10.0.0.2"),
		Sent: 1<<24 - 10, Expected: 5, RTT: 1500 * time.Nanosecond, SentBytes: 1 << 40, Incidents: share.Incidents{Retransmitted: 1<<32 - 1, NAKsSent: 1, NAKsReceived: 2}}
	b := a
	b.Sent, b.Expected, b.SentBytes, b.ReceivedBytes = 10, 1005, a.SentBytes+4000, 2000
	b.Incidents = share.Incidents{Retransmitted: 3, Timeouts: 2, NAKsSent: 2, NAKsReceived: 4, RNRsSent: 6, RNRsReceived: 2, CNPsSent: 4, CNPsReceived: 8}
	c := b
	c.State, c.Sent, c.Expected, c.SentBytes, c.Incidents = "RESET", 7, 3, b.SentBytes-1, share.Incidents{}
	src := stackOf(told(time.Second, a), told(3*time.Second, b), told(4*time.Second, c))
	var m Meter
	want := []Rates{{}, {Sent: 10, Received: 500, SentBytes: 2000, ReceivedBytes: 1000, Retransmitted: 2, Timeouts: 1, NAKs: 1.5, RNRs: 4, CNPs: 6}}
	for i, w := range want {
		s, err := src.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rows := m.Rows(&s)
		if len(rows) != 1 || len(s.Notes) != 0 {
			t.Fatalf("%d rows, notes %q", len(rows), s.Notes)
		}
		r := rows[0]
		if r.Rates != w || r.New != (i == 0) {
			t.Errorf("sample %d: %+v, want %+v", i, r.Rates, w)
		}
		if r.PID != os.Getpid() || r.Program == "" || r.Local.String() != "10.0.0.1 0x12" || r.Peer.String() != "10.0.0.2 0x34" || r.RTT != 1.5 || r.State != "RTS" || device(&r) != "udp 10.0.0.1" {
			t.Errorf("sample %d: %+v", i, r)
		}
	}
	// The PSNs of another connection do not count as progress.
	s, err := src.Sample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := m.Rows(&s)[0]; r.Rates.Sent != 0 || r.Rates.Received != 0 || r.Sent != 20 || r.SentBytes != 4000 || r.State != "RESET" {
		t.Errorf("after RESET %+v", r)
	}
}

// A datagram counts as a message. A device that only one process can use is marked.
func TestStackDatagrams(t *testing.T) {
	a := share.QueuePair{QPN: 0x12, Type: "UD", State: "RTS", Messages: 1<<24 - 1, ReceivedBytes: 100}
	b := a
	b.Messages, b.ReceivedBytes = 1, 300
	lists := [][]share.Address{told(time.Second, a), told(2*time.Second, b)}
	for _, l := range lists {
		l[0].Key, l[0].Exclusive = "xdp eth9", true
	}
	src := stackOf(lists...)
	var m Meter
	var rows []Row
	for range lists {
		s, err := src.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rows = m.Rows(&s)
	}
	if r := rows[0]; r.Rates != (Rates{Received: 2, ReceivedBytes: 200}) || device(&r) != "xdp eth9, exclusive" {
		t.Errorf("%+v", r)
	}
}

// A note tells what a sample cannot show.
func TestStackNotes(t *testing.T) {
	member := func(r *share.Report) share.Member { return share.Member{PID: 7, Version: "v0.9\x1b[2J", Report: r} }
	for _, tt := range []struct {
		list []share.Address
		want string
	}{
		{[]share.Address{{Key: "udp 10.0.0.1", Error: "the keeper does not answer"}}, "udp 10.0.0.1: the keeper does not answer"},
		{[]share.Address{{Key: "udp 10.0.0.3", Members: []share.Member{member(nil)}}}, "process 7 on udp 10.0.0.3 does not say what it does"},
		{[]share.Address{{Key: "udp 10.0.0.3", Members: []share.Member{member(&share.Report{QueuePairs: 2})}}}, "of version v0.9?[2J, does not tell its queue pairs"},
		{[]share.Address{{Key: "udp 10.0.0.3", Members: []share.Member{member(&share.Report{QueuePairs: 2, Queues: make([]share.QueuePair, 1), QueuesOmitted: 1})}}}, "1 queue pairs more than are shown"},
		{[]share.Address{{Key: "udp 10.0.0.3", Members: []share.Member{member(&share.Report{})}}}, "on udp 10.0.0.3 has no queue pair"},
		{[]share.Address{{Key: "xdp 10.0.0.3", Exclusive: true, Members: []share.Member{member(&share.Report{QueuePairs: 1, Queues: make([]share.QueuePair, 1)})}}}, ""},
	} {
		s, err := stackOf(tt.list).Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Notes, "; "); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestStackPretender: a process that pretends to be another process on an address does not change the counts of the real one,
// which has the address exclusively.
func TestStackPretender(t *testing.T) {
	real := share.QueuePair{QPN: 0x12, Type: "RC", State: "RTS", Sent: 100, SentBytes: 1000}
	fake := real
	fake.SentBytes, fake.Sent = 1<<40, 1<<20
	var lists [][]share.Address
	for n := range 3 {
		q := real
		q.SentBytes += uint64(n) * 500
		l := append(told(time.Duration(n+1)*time.Second, q), told(time.Duration(n+1)*time.Second, fake)...)
		l[0].Exclusive = true
		lists = append(lists, l)
	}
	src := stackOf(lists...)
	for n := range lists {
		s, err := src.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Connections[0].SentBytes; got != uint64(n)*500 {
			t.Errorf("sample %d: %d bytes", n, got)
		}
	}
}
