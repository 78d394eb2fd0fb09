package raw

import (
	"errors"
	"strings"
	"testing"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
)

// TestNotEthernet: the refusal of an interface without Ethernet names the driver that works
// there.
func TestNotEthernet(t *testing.T) {
	s, _ := netlab.Pair(t, netlab.Config{})
	s.Do(t, func() {
		p, err := Open(Config{Interface: "lo"})
		if err == nil {
			p.Close()
		}
		if !errors.Is(err, link.ErrUnsupported) || !strings.Contains(err.Error(), `"udp"`) {
			t.Errorf("open the loopback: %v", err)
		}
	})
}
