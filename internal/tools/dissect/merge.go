package dissect

import (
	"bytes"
	"cmp"

	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/link/pcap"
)

// merger sorts the records of several interfaces of one file by their times. Capturing programs write a batch of packets of one
// interface at once, and packets that another interface captured earlier may follow later in the file.
type merger struct {
	queues map[int]*fifo.Queue[pcap.Record]
	n      int // records in the queues
	size   int // bytes in them
}

// Limits of all queues together.
const (
	maxMerged     = 1024    // records
	maxMergedSize = 8 << 20 // bytes
)

// add queues a record. While the queues exceed their limits, it calls f with the earliest record.
func (m *merger) add(rec *pcap.Record, f func(*pcap.Record) error) error {
	if m.queues == nil {
		m.queues = map[int]*fifo.Queue[pcap.Record]{}
	}
	q := m.queues[rec.Interface]
	if q == nil {
		q = new(fifo.Queue[pcap.Record])
		m.queues[rec.Interface] = q
	}
	kept := *rec
	kept.Data = bytes.Clone(rec.Data)
	*q.Push() = kept
	m.n++
	m.size += len(kept.Data)
	for m.n > maxMerged || m.size > maxMergedSize {
		if err := m.next(f); err != nil {
			return err
		}
	}
	return nil
}

// next removes the earliest record, and calls f with it.
func (m *merger) next(f func(*pcap.Record) error) error {
	var first *fifo.Queue[pcap.Record]
	for iface, q := range m.queues {
		if q.Len() == 0 {
			delete(m.queues, iface)
			continue
		}
		if first == nil || before(q.At(0), first.At(0)) {
			first = q
		}
	}
	rec, _ := first.Pop()
	m.n--
	m.size -= len(rec.Data)
	return f(&rec)
}

// before reports whether a comes before b: by the times, and by the order in the file if the times are equal.
func before(a, b *pcap.Record) bool {
	return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Number, b.Number)) < 0
}

// flush calls f with all remaining records.
func (m *merger) flush(f func(*pcap.Record) error) error {
	for m.n > 0 {
		if err := m.next(f); err != nil {
			return err
		}
	}
	return nil
}
