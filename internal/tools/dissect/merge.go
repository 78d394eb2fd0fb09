package dissect

import (
	"bytes"

	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/link/pcap"
)

// merger puts the records of several interfaces of one file into the order of their times. Capturing programs write what one
// interface has received together, so that packets of another one that were captured before come after it.
type merger struct {
	queues map[int]*fifo.Queue[pcap.Record]
	n      int // records in the queues
	size   int // bytes in them
}

// What the queues hold at most.
const (
	maxMerged     = 1024
	maxMergedSize = 8 << 20
)

// add takes a record, and calls f with those that are due.
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

// next gives out the earliest record.
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

// before reports whether a comes before b: by the times, and by the places in the file if they are equal.
func before(a, b *pcap.Record) bool {
	if c := a.Time.Compare(b.Time); c != 0 {
		return c < 0
	}
	return a.Number < b.Number
}

// flush gives out what is left.
func (m *merger) flush(f func(*pcap.Record) error) error {
	for m.n > 0 {
		if err := m.next(f); err != nil {
			return err
		}
	}
	return nil
}
