package gsi

// Census has the numbers of objects of the agent and its connection manager. It
// is for tests.
type Census struct {
	Manager                              int // connections, lookups and requests of the connection manager
	Conns, Queries, Inquiries, Listeners int
	PathsInUse, PathUsers                int
	Watchers                             int
}

// Census counts the existing objects.
func (g *Agent) Census() Census {
	g.shard.Lock()
	defer g.shard.Unlock()
	c := Census{Manager: g.manager.Len(), Conns: len(g.conns), Queries: len(g.queries), Inquiries: len(g.inquiries), Listeners: len(g.listeners)}
	for _, p := range g.paths.byKey {
		c.PathUsers += p.users
		if p.users != 0 {
			c.PathsInUse++
		}
	}
	g.watchers.mu.Lock()
	defer g.watchers.mu.Unlock()
	c.Watchers = len(g.watchers.list)
	return c
}
