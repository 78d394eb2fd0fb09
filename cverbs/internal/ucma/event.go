package ucma

import (
	"sync"
	"syscall"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/translate"
	"github.com/goroce/roce/rdmacm"
)

// channel is an event channel.
type channel struct {
	*rdmacm.Channel

	// mu ensures that the program gets a request before later events of the new identifier.
	mu sync.Mutex
}

// CreateChannel makes an event channel. It calls notify with 1 for each event, and with -n for n dropped
// events. notify must neither block nor call the manager.
func (m *Manager) CreateChannel(notify func(n int)) (abi.Handle, error) {
	host, err := m.Host()
	if err != nil {
		return 0, err
	}
	c := &channel{Channel: host.NewChannel()}
	c.NotifyFunc(notify)
	h, err := m.objects.Add(c)
	if err != nil {
		c.Close()
		return 0, syscall.ENOMEM
	}
	return h, nil
}

// DestroyChannel ends a channel. Identifiers that still use it get no more events.
func (m *Manager) DestroyChannel(h abi.Handle) error {
	c, err := find[*channel](m, h)
	if err != nil || !m.objects.Free(h) {
		return syscall.EINVAL
	}
	c.NotifyFunc(nil)
	return c.Close()
}

// NextEvent takes the oldest event; EAGAIN if there is none.
func (m *Manager) NextEvent(h abi.Handle, out *abi.CMEvent) error {
	c, err := find[*channel](m, h)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		ev, ok := c.TryNext()
		if !ok {
			return syscall.EAGAIN
		}
		if ev.Type == rdmacm.ConnectRequest && m.enter(&identifier{ID: ev.ID}) != nil {
			ev.ID.Destroy() // this rejects the request
			continue
		}
		fill(out, ev)
		return nil
	}
}

func fill(out *abi.CMEvent, ev *rdmacm.Event) {
	of := ev.ID.Context.(*identifier)
	*out = abi.CMEvent{Type: uint32(ev.Type), Status: int32(ev.Status)}
	if ev.ListenID != nil {
		out.Child = of.handle
		of = ev.ListenID.Context.(*identifier)
	}
	out.Cookie = of.cookie.Load()
	if group, ok := ev.Context.(uint64); ok {
		out.Group = group
	}
	var private []byte
	switch {
	case ev.UD != nil:
		private = ev.UD.PrivateData
		out.IsUD, out.QPN, out.QKey = 1, uint32(ev.UD.QPN), uint32(ev.UD.QKey)
		translate.FromAHAttr(&out.AH, &ev.UD.AHAttr)
	case ev.Conn != nil:
		c := ev.Conn
		private = c.PrivateData
		out.QPN, out.ResponderResources, out.InitiatorDepth = uint32(c.QPN), uint8(c.ResponderResources), uint8(c.InitiatorDepth)
		out.FlowControl, out.RetryCount, out.RNRRetryCount, out.SRQ = translate.Flag(c.FlowControl), uint8(c.RetryCount), uint8(c.RNRRetryCount), translate.Flag(c.SRQ)
	}
	out.PrivateLen = uint8(copy(out.PrivateData[:], private))
}
