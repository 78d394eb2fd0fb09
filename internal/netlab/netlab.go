// Package netlab makes small networks for tests: two network namespaces joined by a veth pair. They are
// removed when the test ends.
//
//	  namespace a                         namespace b
//	+--------------------+            +--------------------+
//	| rl<pid>a0  veth    |<---------->| rl<pid>b0  veth    |
//	| 10.88.0.1/24       |            | 10.88.0.2/24       |
//	| fd88::1/64         |            | fd88::2/64         |
//	| fe80::…/64 (EUI-64)|            | fe80::…/64 (EUI-64)|
//	+--------------------+            +--------------------+
//
// It needs Linux and root. Otherwise tests are skipped; with ROCE_REQUIRE_NETNS=1 in the environment
// they fail instead. Tests of features that a kernel lacks are skipped (see Lacking); with
// ROCE_REQUIRE_FEATURES=1 they fail. ROCE_NETLAB_CARDS=eth1,eth2 replaces the veth pair by these two interfaces: see
// Cards.
package netlab

import (
	"net/netip"
	"os"
	"testing"

	"github.com/goroce/roce/bth/frame"
)

// Config configures a network. The zero value is valid.
type Config struct {
	MTU    int // of both interfaces; 0 means 1500
	Queues int // of each interface, for sending and for receiving; 0 means 1
}

// Side is one end of a network.
type Side struct {
	Interface string
	MAC       frame.MAC
	IP4, IP6  netip.Addr
	LinkLocal netip.Addr // fe80::, without a zone

	system
}

// unavailable skips the test, or fails it if ROCE_REQUIRE_NETNS is set.
func unavailable(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("ROCE_REQUIRE_NETNS") == "1" {
		t.Fatalf("ROCE_REQUIRE_NETNS=1, but network namespaces cannot be made: %s", reason)
	}
	t.Skipf("needs network namespaces: %s", reason)
}

// Lacking skips the test because the kernel has no such feature, or fails it if
// ROCE_REQUIRE_FEATURES is set.
func Lacking(t testing.TB, feature string, err error) {
	t.Helper()
	if os.Getenv("ROCE_REQUIRE_FEATURES") == "1" {
		t.Fatalf("ROCE_REQUIRE_FEATURES=1, but the kernel has no %s: %v", feature, err)
	}
	t.Skipf("the kernel has no %s: %v", feature, err)
}
