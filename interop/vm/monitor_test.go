//go:build linux

package vm

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// monitor plays QEMU's monitor: it repeats each command, as a terminal does, and answers from a table.
func monitor(t *testing.T, answers map[string]string) *VM {
	t.Helper()
	v := &VM{monitor: filepath.Join(t.TempDir(), "monitor")}
	l, err := net.Listen("unix", v.monitor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "QEMU 7.2 monitor - type 'help' for more information\r\n(qe", "mu) ")
			for in := bufio.NewScanner(c); in.Scan(); {
				fmt.Fprintf(c, "%s\x1b[K\r\n%s(qemu) ", in.Text(), strings.ReplaceAll(answers[in.Text()], "\n", "\r\n"))
			}
			c.Close()
		}
	}()
	return v
}

func TestQueues(t *testing.T) {
	const path = "/machine/peripheral-anon/device[3]/virtio-backend"
	v := monitor(t, map[string]string{
		"info virtio": "/machine/peripheral-anon/device[1]/virtio-backend [virtio-serial]\n" + path + " [virtio-net]\n",
		"info virtio-queue-status " + path + " 0": "  device_name: virtio-net\n  queue_index: 0\n",
		"info virtio-queue-status " + path + " 1": "  device_name: virtio-net\n  queue_index: 1\n",
		"info virtio-queue-status " + path + " 2": "Error: Invalid virtqueue number 2\n",
	})
	got, err := v.Queues(context.Background())
	want := "# info virtio-queue-status " + path + " 0\n  device_name: virtio-net\n  queue_index: 0\n" +
		"# info virtio-queue-status " + path + " 1\n  device_name: virtio-net\n  queue_index: 1\n"
	if err != nil || got != want {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}

func TestMonitorCanceled(t *testing.T) {
	v := monitor(t, nil)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if out, err := v.Monitor(ctx, "info virtio"); err == nil {
		t.Errorf("no error, but %q", out)
	}
}
