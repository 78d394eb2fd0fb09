package scenario_test

import (
	"testing"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/gsi"
	"github.com/goroce/roce/internal/inside"
)

// TestDispatchEnds: a goroutine that enters a device and delivers events of the connection manager returns, although
// strangers continue to send requests. Goroutines that enter later deliver the remaining events.
func TestDispatchEnds(t *testing.T) {
	n := newNetwork(t)
	config := n.config("10.0.0.1")
	config.Polled = true
	server := n.open(config)
	evil := newAttacker(n, server)
	const strangers = 3000
	asked, seen := 0, 0
	ask := func() {
		if asked < strangers {
			evil.request(manySources(asked), asked)
			asked++
		}
		server.Progress()
	}
	ok(inside.Agent(server).Listen(cm.ListenParam{ServiceID: cm.Service(cm.PortSpaceTCP, 7471)}, gsi.ListenHandler{Conn: func(*gsi.Conn, cm.Event) {
		seen++
		ask()
	}}))(t)
	if ask(); seen > 500 {
		t.Errorf("one call delivered %d requests", seen)
	}
	for server.Progress() {
	}
	if seen != strangers {
		t.Errorf("%d requests of %d were delivered", seen, strangers)
	}
}

// TestDispatchBehind: while a handler blocks, events of the connection manager queue up to a limit. Further messages are
// dropped and counted; their senders may repeat them.
func TestDispatchBehind(t *testing.T) {
	n := newNetwork(t)
	config := n.config("10.0.0.1")
	config.Polled = true
	server := n.open(config)
	evil := newAttacker(n, server)
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	seen := 0
	ok(inside.Agent(server).Listen(cm.ListenParam{ServiceID: cm.Service(cm.PortSpaceTCP, 7471)}, gsi.ListenHandler{Conn: func(*gsi.Conn, cm.Event) {
		if seen++; seen == 1 {
			entered <- struct{}{}
			<-leave
		}
	}}))(t)
	evil.request(manySources(0), 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for server.Progress() {
		}
	}()
	<-entered
	const strangers = 20000
	for k := range strangers {
		evil.request(manySources(k+1), k+1)
		server.Progress()
	}
	if notices := inside.NIC(server).Shard(0).CallsWaiting(); notices > 1500 {
		t.Errorf("%d calls wait", notices)
	}
	counters := server.Counters()
	if taken := counters.CM.Received[0]; taken+counters.Drops.Overrun != strangers+1 {
		t.Errorf("%d requests taken, %d dropped, of %d", taken, counters.Drops.Overrun, strangers+1)
	}
	close(leave)
	<-done
	for server.Progress() {
	}
	before := seen
	evil.request(manySources(strangers+1), strangers+1)
	for server.Progress() {
	}
	if seen != before+1 {
		t.Errorf("%d requests were delivered after the flood", seen-before)
	}
}
