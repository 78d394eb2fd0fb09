//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/interop/child"
	"github.com/goroce/roce/interop/netns"
)

// device is either end of the veth pair. This process opens devices at one end (near), the peer runs at the other (far).
const (
	device    = "veth0"
	near, far = 0, 1
)

// peerIP is where the peer listens.
const peerIP = "10.79.0.2"

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func open(n netns.Netns, driver string, clean bool, seed uint64) (d *roce.Device, err error) {
	err = n.Do(func() error {
		d, err = openHere(driver, clean, seed)
		return err
	})
	return d, err
}

func openHere(driver string, clean bool, seed uint64) (*roce.Device, error) {
	return roce.OpenInterface(device, roce.InterfaceConfig{Driver: driver, Wrap: lossy(clean, seed)})
}

// startPeer starts the peer and waits until it listens.
func startPeer(ctx context.Context, n netns.Netns, driver string) (*child.Process, error) {
	p, err := child.Start("peer", n, nil, peerVariable+"="+driver)
	if err != nil {
		return nil, err
	}
	if err := rest(ctx, p); err != nil {
		p.Kill()
		return nil, fmt.Errorf("the peer has not started: %w", err)
	}
	return p, nil
}

// rest asks the peer, after its connections have ended, whether it uses no more resources than
// before.
func rest(ctx context.Context, p *child.Process) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	return p.Call(ctx, "Rest", nil, nil)
}
