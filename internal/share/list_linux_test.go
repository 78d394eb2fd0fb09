package share

import (
	"net"
	"slices"
	"strings"
	"testing"
)

// listed returns the address of a key, if it is listed.
func listed(t *testing.T, k string) (Address, bool) {
	t.Helper()
	all, err := List()
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
	d := new(desk)
	k := key(t) + " #7"
	a, b := join(t, k, 1, d), join(t, k, 2, d)
	a.OnReport(func() Report {
		return Report{QueuePairs: 1, Connections: 2, Services: []uint64{3}, TxPackets: 4, RxPackets: 5}
	})
	many := make([]uint64, maxServices)
	for i := range many {
		many[i] = 1<<63 + uint64(i)
	}
	b.OnReport(func() Report { return Report{QueuePairs: 6, Services: many} })
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
	r.limit(10)
	if len(r.Services) != 10 || r.Omitted != 0 {
		t.Errorf("%+v", r)
	}
	r.limit(4)
	if len(r.Services) != 4 || r.Omitted != 6 {
		t.Errorf("%+v", r)
	}
	(*Report)(nil).limit(1)
}

// A keeper that does not answer is listed, with the reason; so is one that says nonsense.
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

// The kernel's list has other sockets, too.
func TestKeyOf(t *testing.T) {
	for line, want := range map[string]string{
		"Num       RefCount Protocol Flags    Type St Inode Path":                        "",
		"ffff0: 00000002 00000000 00010000 0005 01 4711 @goroce/udp 10.0.0.1":            "udp 10.0.0.1",
		"0000000000000000: 00000002 00000000 00010000 0005 01 4711 @goroce/udp #3":       "udp #3",
		"0000000000000000: 00000002 00000000 00000000 0002 01 4711 @goroce/udp #3#5":     "",
		"0000000000000000: 00000003 00000000 00000000 0005 03 4711 @goroce/udp 10.0.0.1": "",
		"0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/systemd/private": "",
		"0000000000000000: 00000002 00000000 00010000 0001 01 4711":                      "",
		"0000000000000000: 00000002 00000000 00010000 0005 01 4711 @goroce/":             "",
	} {
		if got, ok := keyOf(line); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", line, got, ok)
		}
	}
}
