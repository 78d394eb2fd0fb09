package hostnet

// A request of package netlink takes more than 64 KiB of stack. If each caller made requests on its own goroutine, the
// runtime would copy that goroutine's stack to a larger one each time, which takes longer than the request: a program
// that starts a goroutine for each connection request would pay for it with each one. So frequent requests run
// on one goroutine of the Interface, whose stack stays large.

// deep runs f on the goroutine for requests, and waits. The caller holds the lock.
func (i *Interface) deep(f func()) {
	i.calls <- f
	<-i.returned
}

// runDeep is the goroutine for requests.
func (i *Interface) runDeep() {
	for {
		select {
		case f := <-i.calls:
			f()
			i.returned <- struct{}{}
		case <-i.done:
			return
		}
	}
}
