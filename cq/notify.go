package cq

// Client is the receiver of a notification. Each client has a separate arm, so none takes
// the event that another one has asked for.
type Client uint8

const (
	Channel         Client = iota // the completion channel of the queue: ibv_req_notify_cq
	Waiter                        // callers that wait for any completion
	SolicitedWaiter               // callers that wait for a solicited completion
	workRequests                  // those that are parked: see [CQ.Park]
	clients
)

// Every client has two bits in CQ.arms.
const (
	armNext      = 1
	armSolicited = 2
	armBits      = 2
)

// Arm asks for one call of Notify for a client (ibv_req_notify_cq): at the next
// completion or, with solicitedOnly, at the next one that is a receive with the
// solicited event bit or is in error. Arming twice before an event gives one
// event, for the weaker of the two conditions.
//
// The rule for errors is the standard's (IBTA vol. 1, 11.4.2.2). rxe differs:
// a send completion in error does not count as solicited there.
func (c *CQ) Arm(who Client, solicitedOnly bool) {
	bit := uint32(armNext)
	if solicitedOnly {
		bit = armSolicited
	}
	c.arms.Or(bit << (armBits * who))
}

// fire notifies every client whose condition the completion meets, once, and
// disarms it.
func (c *CQ) fire(arms uint32, solicited bool) {
	meets := uint32(armNext)
	if solicited {
		meets |= armSolicited
	}
	for who := range clients {
		at := armBits * who
		if arms>>at&meets == 0 {
			continue
		}
		c.arms.And(^uint32((armNext | armSolicited) << at))
		switch {
		case who == workRequests:
			c.wakeParked()
		case c.notify != nil:
			c.notify(who)
		}
	}
}

// HasSolicited reports whether a completion that [CQ.Arm] calls solicited waits
// to be polled.
func (c *CQ) HasSolicited() bool { return c.solicited.Load() > c.head.Load() }
