package verify

import (
	"sync"

	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/pcap"
)

// Tap judges what goes through port while it goes, and fails the test as soon as a packet breaks a rule of the standard, unless a
// known departure explains it or it is a note. The packets are captured as they are sent and as they arrive, so all
// rules apply. The Port that is returned takes the place of port. With faults, put the tap around them, or
// between them and the device for what the device itself does.
func Tap(t T, port link.Port, cfg Config) link.Port {
	t.Helper()
	cfg.Directions, cfg.Complete, cfg.Dropped, cfg.Live = true, true, false, true
	found := cfg.Found
	cfg.Found = func(f *Finding) {
		if f.Failure() {
			t.Errorf("%s", f)
		}
		if found != nil {
			found(f)
		}
	}
	v, err := New(cfg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var mu sync.Mutex // sending and receiving may be on two goroutines
	tapped, err := pcap.Wrap(port, nil, pcap.Options{Seen: func(r *pcap.Record) {
		mu.Lock()
		defer mu.Unlock()
		v.Add(0, r)
	}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return tapped
}
