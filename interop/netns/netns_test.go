//go:build linux

package netns

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"
)

// A run that is interrupted at any moment while it makes a namespace leaves no namespace.
func TestInterruptedNew(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root is needed for network namespaces")
	}
	there := func(n Netns) bool {
		_, err := os.Stat("/run/netns/" + string(n))
		return err == nil
	}
	left := Netns("roce-" + strconv.Itoa(os.Getpid()) + "-interrupted")
	for after := time.Duration(0); after < 20*time.Millisecond; after += 500 * time.Microsecond {
		ctx, stop := context.WithTimeout(t.Context(), after)
		n, err := New(ctx, "interrupted")
		stop()
		if err == nil {
			if n != left || !there(n) {
				t.Fatalf("New returned %s, but it does not exist", n)
			}
			n.Remove()
			continue
		}
		if n != "" {
			t.Errorf("after %v New returns %q and %v", after, n, err)
		}
		if there(left) {
			left.Remove()
			t.Fatalf("interrupted after %v New leaves %s", after, left)
		}
	}
}
