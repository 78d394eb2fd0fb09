package notify

// Counter is a function that a program with its own event loop registers for events: it is called with n when n events
// were added, and with -n when n were dropped. Nil: there is none.
type Counter func(n int)

// Add calls the function, unless n is 0.
func (f Counter) Add(n int) {
	if f != nil && n != 0 {
		f(n)
	}
}
