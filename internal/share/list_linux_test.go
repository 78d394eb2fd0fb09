package share

import (
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// listed returns the address of a key, if it is listed.
func listed(t *testing.T, k string) (Address, bool) {
	t.Helper()
	all, err := List(false)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(a Address) bool { return a.Key == k })
	if i < 0 {
		return Address{}, false
	}
	return all[i], true
}

// An address is listed with its processes as long as there is one.
func TestList(t *testing.T) {
	d := new(fakeMedium)
	k := key(t) + " #7"
	a, b := join(t, k, 1, d), join(t, k, 2, d)
	a.OnReport(func(detail bool) Report {
		return Report{QueuePairs: 1, Connections: 2, Services: []uint64{3}, TxPackets: 4, RxPackets: 5}
	})
	many := make([]uint64, maxServices)
	for i := range many {
		many[i] = 1<<63 + uint64(i)
	}
	b.OnReport(func(detail bool) Report {
		r := Report{QueuePairs: 6, Services: many}
		if detail {
			r.Queues = []QueuePair{{QPN: 0x12, State: "RTS", Incidents: Incidents{Timeouts: 7}}}
		}
		return r
	})
	got, ok := listed(t, k)
	if !ok || got.Error != "" || len(got.Members) != 2 {
		t.Fatalf("%v, %+v", ok, got)
	}
	for _, m := range got.Members {
		mine, keeper := a, true
		if m.Slots[0] == b.Slots()[0] {
			mine, keeper = b, false
		}
		me := self()
		if !slices.Equal(m.Slots, mine.Slots()) || m.Keeper != keeper || m.PID != int(me.Pid) || m.UID != int(me.Uid) || m.Age <= 0 || m.Version == "" || m.Report == nil {
			t.Errorf("%+v", m)
		}
	}
	detailed, err := List(true)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, at := range detailed {
		for _, m := range at.Members {
			if at.Key == k && m.Report != nil {
				told += len(m.Report.Queues)
			}
		}
	}
	if told != 1 || got.Members[0].Report.Queues != nil || got.Members[1].Report.Queues != nil {
		t.Errorf("%d queue pairs told when asked for, in %+v", told, detailed)
	}
	a.Close()
	eventually(t, "the other process is the keeper", func() bool {
		got, ok := listed(t, k)
		return ok && len(got.Members) == 1 && got.Members[0].Keeper && got.Members[0].Report != nil && got.Members[0].Report.QueuePairs == 6
	})
	b.Close()
	if got, ok := listed(t, k); ok {
		t.Errorf("nobody is on it, but listed: %+v", got)
	}
}

// More services than a message has room for are cut, and counted.
func TestListServices(t *testing.T) {
	r := &Report{Services: make([]uint64, 10)}
	r.limit(10, 0)
	if len(r.Services) != 10 || r.Omitted != 0 {
		t.Errorf("%+v", r)
	}
	r.limit(4, 0)
	if len(r.Services) != 4 || r.Omitted != 6 {
		t.Errorf("%+v", r)
	}
	(*Report)(nil).limit(1, 1)
}

// The reports that limitAll has limited fit into one message, however many processes there are and however long the
// numbers.
func TestListFits(t *testing.T) {
	most := ^uint32(0)
	q := QueuePair{QPN: 1<<24 - 1, Type: "XRC_RECV", State: "RESET", DestQPN: 1<<24 - 1, Own: netip.MustParseAddr("fd00:1111:2222:3333:4444:5555:6666:7777"), Peer: netip.MustParseAddr("fd00:1111:2222:3333:4444:5555:6666:8888"),
		Sent: 1<<24 - 1, Expected: 1<<24 - 1, Messages: 1<<24 - 1, SentBytes: 1 << 63, ReceivedBytes: 1 << 63, InFlight: 1 << 23, Window: 1 << 23, Posted: 1 << 20, RTT: time.Hour, Rate: 4e11,
		Incidents: Incidents{most, most, most, most, most, most, most, most, most}}
	for processes := range Slots {
		members := make([]Member, processes+1)
		for i := range members {
			r := &Report{QueuePairs: 1 << 20, Connections: 1 << 20, TxPackets: 1 << 62, RxPackets: 1 << 62, Clock: 1 << 60}
			for s := range maxServices {
				r.Services = append(r.Services, 1<<63+uint64(s))
			}
			for range 500 {
				r.Queues = append(r.Queues, q)
			}
			members[i] = Member{PID: 1 << 22, UID: 1 << 30, Slots: []Slot{63}, Age: time.Hour, Version: "v1.222.333-0.20261231235959-0123456789ab", Report: r}
		}
		limitAll(members, true)
		b, err := json.Marshal(message{Op: opList, Seq: 1, Members: members})
		if err != nil || len(b) > maxMessage {
			t.Fatalf("%d processes: %d bytes of %d, %v", processes+1, len(b), maxMessage, err)
		}
	}
}

// limitAll keeps all queue pairs of a process with few. Of other processes it keeps the connected ones first.
func TestListQueuePairs(t *testing.T) {
	queues := func(n, connected int) *Report {
		r := &Report{}
		for i := range n {
			q := QueuePair{QPN: uint32(100 + i)}
			if i >= n-connected {
				q.Peer = netip.IPv4Unspecified()
			}
			r.Queues = append(r.Queues, q)
		}
		return r
	}
	members := []Member{{Report: queues(maxQueues, 1)}, {Report: queues(2, 0)}, {}, {Report: queues(maxQueues, maxQueues)}}
	limitAll(members, true)
	a, few, b := members[0].Report, members[1].Report, members[3].Report
	if len(few.Queues) != 2 || few.QueuesOmitted != 0 || len(a.Queues)+len(b.Queues) != maxQueues-2 || len(a.Queues) != len(b.Queues) {
		t.Errorf("%d, %d and %d queue pairs", len(a.Queues), len(few.Queues), len(b.Queues))
	}
	if a.QueuesOmitted+len(a.Queues) != maxQueues || a.Queues[0].QPN != 100+maxQueues-1 || a.Queues[1].QPN != 100 {
		t.Errorf("omitted %d, first %d and %d", a.QueuesOmitted, a.Queues[0].QPN, a.Queues[1].QPN)
	}
}

// A keeper of an older version, which ignores the request for queue pairs, is listed without them.
func TestListOlderKeeper(t *testing.T) {
	k := key(t)
	l, err := net.ListenUnix("unixpacket", keeperName(k))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		c.Read(make([]byte, maxMessage))
		c.Write([]byte(`{"op":"list","seq":1,"members":[{"pid":7,"slots":[1],"keeper":true,"report":{"queue_pairs":3,"connections":2,"services":null,"tx_packets":4,"rx_packets":5}}]}`))
	}()
	all, err := List(true)
	i := slices.IndexFunc(all, func(a Address) bool { return a.Key == k })
	if err != nil || i < 0 || len(all[i].Members) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	if r := all[i].Members[0].Report; r == nil || r.QueuePairs != 3 || r.TxPackets != 4 || r.Queues != nil || r.Clock != 0 {
		t.Errorf("%+v", r)
	}
}

// A keeper that does not answer, or answers with nonsense, is listed with the reason.
func TestListSilent(t *testing.T) {
	for name, answer := range map[string]func(*net.UnixConn){
		"silent": func(*net.UnixConn) {},
		"gone":   func(c *net.UnixConn) { c.Close() },
		"wrong":  func(c *net.UnixConn) { c.Write([]byte("{}")) },
		"no":     func(c *net.UnixConn) { c.Write([]byte(`{"op":"refuse","error":"not you"}`)) },
	} {
		k := key(t) + name
		l, err := net.ListenUnix("unixpacket", keeperName(k))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.AcceptUnix()
				if err != nil {
					return
				}
				defer c.Close()
				answer(c)
			}
		}()
		me := self()
		got, ok := listed(t, k)
		if !ok || !strings.Contains(got.Error, "does not answer") || len(got.Members) != 1 || got.Members[0].PID != int(me.Pid) || !got.Members[0].Keeper {
			t.Errorf("%s: %v, %+v", name, ok, got)
		}
	}
}

// tellerOf accepts only the listening sockets of keepers and owners, of all in the kernel's list.
func TestTellerOf(t *testing.T) {
	for line, want := range map[string]string{
		"Num       RefCount Protocol Flags    Type St Inode Path":                            "",
		"ffff0: 00000002 00000000 00010000 0005 01 4711 @goroce/udp 10.0.0.1":                "@goroce/udp 10.0.0.1",
		"0000000000000000: 00000002 00000000 00010000 0005 01 4711 @goroce/udp #3":           "@goroce/udp #3",
		"0000000000000000: 00000002 00000000 00010000 0005 01 4711 @goroce owner/xdp #3":     "@goroce owner/xdp #3",
		"0000000000000000: 00000002 00000000 00000000 0002 01 4711 @goroce/udp #3#5":         "",
		"0000000000000000: 00000003 00000000 00000000 0005 03 4711 @goroce/udp 10.0.0.1":     "",
		"0000000000000000: 00000003 00000000 00000000 0005 03 4711 @goroce owner/xdp #3":     "",
		"0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/systemd/private":     "",
		"0000000000000000: 00000002 00000000 00010000 0001 01 4711":                          "",
		"0000000000000000: 00000002 00000000 00010000 0005 01 4711 @goroce/":                 "",
		"0000000000000000: 00000002 00000000 00010000 0005 01 4711 @goroce owner/":           "",
		"0000000000000000: 00000002 00000000 00010000 0005 01 4711 @goroce something/xdp #3": "",
	} {
		if got, ok := tellerOf(line); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", line, got, ok)
		}
	}
}

// A process that has an address for itself is listed with its report, until it closes its Owner. So is a second one
// with the same key.
func TestListExclusive(t *testing.T) {
	k := key(t) + " #7"
	first, err := Occupy(k)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := Occupy(k)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range []*Owner{first, second} {
		o.OnReport(func(detail bool) Report {
			r := Report{QueuePairs: 1 + i}
			if detail {
				r.Queues = make([]QueuePair, maxQueues+5)
			}
			return r
		})
	}
	both := func(detail bool) (found []*Report) {
		all, err := List(detail)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if a.Key != k {
				continue
			}
			m := a.Members[0]
			if !a.Exclusive || a.Error != "" || len(a.Members) != 1 || m.Keeper || m.Slots != nil || m.PID != int(self().Pid) || m.Version == "" || m.Age <= 0 || m.Report == nil {
				t.Fatalf("%+v", a)
			}
			found = append(found, m.Report)
		}
		slices.SortFunc(found, func(a, b *Report) int { return a.QueuePairs - b.QueuePairs })
		return found
	}
	if got := both(false); len(got) != 2 || got[0].QueuePairs != 1 || got[1].QueuePairs != 2 || got[0].Queues != nil {
		t.Errorf("%+v", got)
	}
	if got := both(true); len(got) != 2 || len(got[0].Queues) != maxQueues || got[0].QueuesOmitted != 5 {
		t.Errorf("%+v", got)
	}
	second.Close()
	if got := both(false); len(got) != 1 || got[0].QueuePairs != 1 {
		t.Errorf("%+v", got)
	}
	if who := owner(k); !strings.Contains(who, "process") {
		t.Errorf("the owner is %q", who)
	}
	// A client that connects and sends nothing delays neither the others nor Close.
	silent, err := dial(ownerName(k).Name)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if got := both(false); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	first.Close()
	if got := both(false); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
