//go:build linux

package vm

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
)

// prompt ends the greeting of QEMU's monitor and each of its answers.
const prompt = "(qemu) "

// Monitor runs a command of QEMU's monitor and returns its output.
func (v *VM) Monitor(ctx context.Context, command string) (string, error) {
	out, err := ask(ctx, v.monitor, command)
	if err != nil {
		return "", fmt.Errorf("QEMU's monitor: %s: %w", command, err)
	}
	return out, nil
}

// ask is Monitor for the monitor at a socket.
func ask(ctx context.Context, socket, command string) (string, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if _, err := readPrompt(c); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, command); err != nil {
		return "", err
	}
	out, err := readPrompt(c)
	if err != nil {
		return "", err
	}
	_, out, _ = strings.Cut(strings.ReplaceAll(out, "\r", ""), "\n") // the first line repeats the command
	return out, nil
}

// readPrompt reads up to a prompt and returns what comes before it.
func readPrompt(c net.Conn) (string, error) {
	var text strings.Builder
	room := make([]byte, 4096)
	for !strings.HasSuffix(text.String(), prompt) {
		n, err := c.Read(room)
		if err != nil {
			return "", err
		}
		text.Write(room[:n])
	}
	return strings.TrimSuffix(text.String(), prompt), nil
}

// virtioNet matches the path of an emulated virtio_net card.
var virtioNet = regexp.MustCompile(`(?m)^(\S+) \[virtio-net\]`)

// Queues returns the state of all queues of the guest's virtio_net cards as QEMU has it: what the guest has offered,
// and how much of that QEMU has used.
func (v *VM) Queues(ctx context.Context) (string, error) {
	list, err := v.Monitor(ctx, "info virtio")
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, m := range virtioNet.FindAllStringSubmatch(list, -1) {
		for q := 0; ; q++ {
			command := fmt.Sprintf("info virtio-queue-status %s %d", m[1], q)
			out, err := v.Monitor(ctx, command)
			if err != nil {
				return all.String(), err
			}
			if !strings.Contains(out, "queue_index") { // there is no such queue
				break
			}
			fmt.Fprintf(&all, "# %s\n%s", command, out)
		}
	}
	return all.String(), nil
}
