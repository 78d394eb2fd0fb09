//go:build linux

package main

import (
	"context"
	"fmt"
	"regexp"
	"syscall"
)

// processes is how many processes of ours share the address.
const processes = 3

// shared: several processes of ours on one address transfer at the same time, each with a
// program of Linux.
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

// ended judges a server whose client has all it wanted.
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

// told is what rping prints when it has got a DREQ.
var told = regexp.MustCompile(`client DISCONNECT EVENT`)

// sharedKilled: one of several processes of ours is killed in mid-transfer. Another one tells its
// peer, as a kernel does for a dead process, and the others go on.
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
	for _, srv := range servers { // the keeper first: another process takes over
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
			return fmt.Errorf("client %d of %d was not told: %w", i, processes, err)
		}
	}
	if last := clients[processes-1]; !last.Running() {
		return fmt.Errorf("%s: %s: ended with the process of another one", last.side.label(), last.Line)
	}
	return nil
}
