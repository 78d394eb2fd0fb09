package qp

// SplitReads makes READs of more than n packets go out as several requests, as
// only those of half a gigabyte and more do otherwise.
func (q *QP) SplitReads(n uint32) { q.readPSNs = n }
