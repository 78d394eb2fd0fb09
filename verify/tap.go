package verify

import (
	"sync"

	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/pcap"
)

// Tap returns a Port that passes all packets on to and from port, and judges them. It fails the test as soon as a packet breaks a rule
// with severity warning or error, unless a known departure explains it. The direction of each packet is known, so all rules apply. If
// the test also injects faults, wrap the Port with the faults to judge the packets on the wire. To judge only what the device does,
// put the tap between the device and the faults.
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
