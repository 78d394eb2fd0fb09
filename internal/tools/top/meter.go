package top

import "time"

// Row is a connection with its rates since the previous sample.
type Row struct {
	Connection
	New     bool      `json:"new,omitempty"` // it was not in the previous sample, so its rates are not known
	Rates   Rates     `json:"per_second"`
	History []float64 `json:"-"` // packets per second both ways, the newest last
}

// historyLen is how many samples a row remembers.
const historyLen = 60

// Meter computes rows from successive samples. The zero value is ready to use.
type Meter struct {
	before map[string]seen
}

// seen is a connection in the last sample.
type seen struct {
	counts  Counts
	at      time.Duration
	wall    time.Time
	history []float64
}

// Rows returns the rows of the next sample. It drops its state of connections that are not in this sample.
func (m *Meter) Rows(s *Sample) []Row {
	now := make(map[string]seen, len(s.Connections))
	rows := make([]Row, 0, len(s.Connections))
	for _, c := range s.Connections {
		r := Row{Connection: c, New: true}
		was, ok := m.before[c.Key]
		if ok {
			r.New = false
			took := s.Time.Sub(was.wall)
			if c.Clock != 0 && was.at != 0 {
				took = c.Clock - was.at
			}
			r.Rates = c.Counts.since(&was.counts, took)
			r.History = append(was.history[max(0, len(was.history)-historyLen+1):len(was.history):len(was.history)], r.Rates.Sent+r.Rates.Received)
		}
		now[c.Key] = seen{c.Counts, c.Clock, s.Time, r.History}
		rows = append(rows, r)
	}
	m.before = now
	return rows
}
