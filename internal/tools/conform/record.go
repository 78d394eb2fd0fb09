package conform

import (
	"bytes"
	"context"
	"sync"

	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/link/pcap"
)

// maxRecorded bounds the packets of a step that are kept, in bytes. Steps have far less; a peer that sends without end does not.
const maxRecorded = 64 << 20

// recorder keeps the packets of a step, in the order in which they pass.
type recorder struct {
	mu      sync.Mutex
	records []pcap.Record
	bytes   int
	over    bool // more came than were kept
	news    chan struct{}
}

func newRecorder() *recorder { return &recorder{news: make(chan struct{}, 1)} }

// seen takes a packet from the tap.
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
	c.Number = len(r.records) + 1 // of all queues together
	r.records = append(r.records, c)
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// all returns what was recorded. The records stay as they are.
func (r *recorder) all() (records []pcap.Record, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[:len(r.records):len(r.records)], r.over
}

// await waits until a packet matches.
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
