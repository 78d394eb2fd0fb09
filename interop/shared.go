//go:build linux

package main

import (
	"context"
	"fmt"
	"regexp"
	"syscall"
)

// processes is how many processes of this stack share the address.
const processes = 3

// shared: several processes of this stack on one address transfer at the same time, each with its
// own peer on Linux.
func (r *caseRun) shared() error {
	servers, clients, err := r.pairs(r.par)
	if err != nil {
		return err
	}
	for _, cl := range clients {
		if err := r.succeeded(cl); err != nil {
			return err
		}
	}
	for _, srv := range servers {
		if err := r.ended(srv); err != nil {
			return err
		}
	}
	return nil
}

// ended checks a server whose client has ended with success.
func (r *caseRun) ended(srv *started) error {
	if r.impair.lossy && r.tool.exitsEarly && r.linux == client {
		return r.abandoned(srv)
	}
	return r.succeeded(srv)
}

// pairs starts a server and a client for each of the processes.
func (r *caseRun) pairs(par params) (servers, clients []*started, err error) {
	var ports []params
	for range processes {
		srv, err := r.listen(par)
		if err != nil {
			return nil, nil, err
		}
		servers, ports = append(servers, srv), append(ports, par)
		r.bed.port++
		par.port = r.bed.port
	}
	for _, p := range ports {
		cl, err := r.start(client, p)
		if err != nil {
			return nil, nil, err
		}
		clients = append(clients, cl)
	}
	return servers, clients, nil
}

// told matches the line that rping prints when it has received a DREQ.
var told = regexp.MustCompile(`client DISCONNECT EVENT`)

// sharedKilled: one of several processes that share the address is killed in mid-transfer. Another
// one sends a DREQ to its peer, as a kernel does for a dead process, and the other connections
// continue.
func (r *caseRun) sharedKilled() error {
	p := r.par
	p.count = 1_000_000
	servers, clients, err := r.pairs(p)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(r.ctx, cleanLimit)
	defer stop()
	for _, cl := range clients {
		if err := cl.WaitFor(ctx, r.tool.busy); err != nil {
			return err
		}
	}
	for _, srv := range servers { // the keeper first, so that another process becomes the keeper
		if srv == servers[len(servers)-1] {
			break
		}
		srv.cut = true
		if err := srv.Signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	for i, cl := range clients[:processes-1] {
		if err := cl.WaitFor(ctx, told); err != nil {
			return fmt.Errorf("client %d of %d received no DREQ: %w", i, processes, err)
		}
	}
	if last := clients[processes-1]; !last.Running() {
		return fmt.Errorf("%s: %s: ended when another client's server was killed", last.side.label(), last.Line)
	}
	return nil
}
