package roce

import "github.com/goroce/roce/qp"

// lineRate returns the parameters with the speed of the port as line rate, if
// they have none and the port knows it.
func (d *Device) lineRate(c *DCQCN) *DCQCN {
	p := *c
	if p.LineRate == 0 {
		p.LineRate = qp.Rate(d.info.Speed) * qp.Mbps
	}
	return &p
}

// Congestion returns what congestion control makes of the queue pair: whether
// it is on, and the rate it allows now.
func (q *QP) Congestion() CongestionState {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	return q.engine.Congestion(q.dev.now())
}
