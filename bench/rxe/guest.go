//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/interop/repo"
	"github.com/goroce/roce/interop/vm"
)

// The files in the guest.
const (
	guestSelf    = "/usr/bin/bench-rxe"
	guestRocectl = "/usr/bin/rocectl"
	guestLib     = "/opt/roce/lib"
	guestResults = "/run/rxe.json"
)

// guestLimit is longer than a run takes.
const guestLimit = 3 * time.Hour

// inGuest boots a virtual machine and runs this program there.
func (o *options) inGuest(ctx context.Context, dir string) error {
	self, err := program(ctx, dir, "bench-rxe", "bench/rxe")
	if err != nil {
		return err
	}
	netns.Sweep(ctx)
	ns, err := netns.New(ctx, "rxe")
	if err != nil {
		return err
	}
	defer ns.Remove()
	if err := ns.IP(ctx, "tuntap add dev tap0 mode tap", "link set tap0 up"); err != nil {
		return err
	}
	root, err := repo.Root()
	if err != nil {
		return err
	}
	scripts := filepath.Join(root, "interop", "vm")
	image, err := vm.Image(ctx, scripts, o.kernel)
	if err != nil {
		return err
	}
	files := map[string]string{guestRocectl: o.rocectl, guestSelf: self}
	for _, name := range []string{"libibverbs.so.1", "librdmacm.so.1", "libroce-engine.so"} {
		files[guestLib+"/"+name] = filepath.Join(o.lib, name)
	}
	v, accel, err := boot(ctx, vm.Config{Scripts: scripts, Image: image, Netns: string(ns), Tap: "tap0", MTU: 1500, CPUs: o.cpus,
		IP4: "10.77.0.2/24", IP6: "fd77::2/64", MAC: "52:54:00:77:00:02", Console: filepath.Join(dir, "console"),
		Files: files})
	if err != nil {
		return err
	}
	defer v.Close()
	return o.runInGuest(ctx, v, accel)
}

// emulated is a processor without the instructions that an emulator executes one byte or one bit
// at a time: the string instructions with which Linux copies, and the carry-less multiplication.
// With these instructions the cost of the bytes would hide all other costs.
const emulated = "max,-erms,-fsrm,-pclmulqdq"

// boot starts the guest. It tries KVM first: some machines have a KVM that does not work.
func boot(ctx context.Context, c vm.Config) (*vm.VM, string, error) {
	start := func(accel string, limit time.Duration) (*vm.VM, error) {
		ctx, stop := context.WithTimeout(ctx, limit)
		defer stop()
		c.Accel = accel
		return vm.Boot(ctx, c)
	}
	if v, err := start("kvm", 30*time.Second); err == nil {
		return v, "KVM", nil
	}
	fmt.Fprintln(os.Stderr, "rxe: no KVM here, the guest is emulated")
	c.CPU = emulated
	v, err := start("tcg,thread=multi", 3*time.Minute)
	return v, "emulated", err
}

// runInGuest runs this program in the guest, copies its output, and fetches its results.
func (o *options) runInGuest(ctx context.Context, v *vm.VM, accel string) error {
	// The image has an rxe device for other programs.
	if _, err := v.Run(ctx, "rdma", "link", "delete", "rxe0"); err != nil {
		return err
	}
	p, err := v.Start(guestLimit, guestSelf, "-here", "-guest", accel, "-rocectl", guestRocectl, "-lib", guestLib, "-out", guestResults, "-cpus", strconv.Itoa(o.cpus),
		"-rounds", strconv.Itoa(o.rounds), "-seconds", strconv.Itoa(o.seconds), "-links", strings.Join(o.links, ","), "-run", o.run.String())
	if err != nil {
		return err
	}
	if err := p.Copy(ctx, os.Stdout); err != nil {
		return err
	}
	if e, err := p.Wait(ctx); err != nil || !e.OK() {
		return cmp.Or(err, fmt.Errorf("in the guest: %v", e))
	}
	b, err := v.Run(ctx, "cat", guestResults)
	if err != nil {
		return err
	}
	return writeFile(o.out, []byte(b))
}
