package rsocket

import (
	"sync"
	"time"
)

// defaultKeepalive is the period of Linux's TCP.
const defaultKeepalive = 2 * time.Hour

// keepalive sends empty WRITEs to the peer at intervals, so that this side notices the loss
// of the peer.
type keepalive struct {
	mu     sync.Mutex
	period time.Duration
	timer  *time.Timer
	over   bool
}

// SetKeepAlive turns probes on or off (SO_KEEPALIVE). If the peer does not
// acknowledge a probe, the stream breaks with ETIMEDOUT.
func (c *Conn) SetKeepAlive(on bool) error {
	if !on {
		return c.SetKeepAlivePeriod(0)
	}
	return c.SetKeepAlivePeriod(defaultKeepalive)
}

// SetKeepAlivePeriod sets the time between probes (TCP_KEEPIDLE); 0 means no
// probes.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	if err := c.openError("set"); err != nil {
		return err
	}
	k := &c.keepalive
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
	if k.period = d; d > 0 && !k.over {
		k.timer = time.AfterFunc(d, c.probe)
	}
	return nil
}

func (k *keepalive) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	if k.timer != nil {
		k.timer.Stop()
	}
}

// probe sends a probe.
func (c *Conn) probe() {
	c.mu.Lock()
	if !c.ended && c.tx.ctrl > 0 {
		c.flush()
	}
	c.mu.Unlock()
	k := &c.keepalive
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer != nil && !k.over {
		k.timer.Reset(k.period)
	}
}
