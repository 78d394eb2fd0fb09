package conform

import (
	"bytes"
	"context"
	"sync"

	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/link/pcap"
)

// maxRecorded bounds the packets of a step that are kept, in bytes. A step has far less, unless the peer sends packets without end.
const maxRecorded = 64 << 20

// recorder keeps the packets of a step, in the order in which they pass.
type recorder struct {
	mu      sync.Mutex
	records []pcap.Record
	bytes   int
	over    bool          // packets were dropped because of maxRecorded
	news    chan struct{} // gets a value when a packet was recorded
}

func newRecorder() *recorder { return &recorder{news: make(chan struct{}, 1)} }

// seen records a packet from the tap.
func (r *recorder) seen(rec *pcap.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes+len(rec.Data) > maxRecorded {
		r.over = true
		return
	}
	r.bytes += len(rec.Data)
	c := *rec
	c.Data = bytes.Clone(rec.Data)
	c.Number = len(r.records) + 1 // one numbering for the taps of all queues
	r.records = append(r.records, c)
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// all returns the packets so far. The recorder does not change them later. over says that packets are missing.
func (r *recorder) all() (records []pcap.Record, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[:len(r.records):len(r.records)], r.over
}

// await waits until match returns true for a recorded packet.
func (r *recorder) await(ctx context.Context, match func(*dissect.Packet) bool) error {
	var p dissect.Packet
	for n := 0; ; {
		records, _ := r.all()
		for ; n < len(records); n++ {
			p.ParseRecord(&records[n])
			if p.Kind == dissect.RoCE && match(&p) {
				return nil
			}
		}
		select {
		case <-r.news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
