package dissect

import (
	"os"
	"strings"
	"testing"
)

// TestLNet: the line of a packet names the message of o2iblnd that the packet completes, or that is in its private data. For a
// SEND of several packets this is the line of the last packet.
func TestLNet(t *testing.T) {
	for name, want := range map[string]map[int]string{
		"ping-216":     {3: "o2iblnd CONNREQ 10.77.0.1@o2ib", 4: "o2iblnd CONNACK 10.77.0.2@o2ib", 6: "LNet GET", 8: "o2iblnd IMMEDIATE credits=1 LNet REPLY"},
		"qdepth-216":   {2: "o2iblnd REJ MSG_QUEUE_SIZE"},
		"brwsizes-216": {17: "LNet REPLY"},
	} {
		f, err := os.Open("../../../testdata/pcaps/lnet/" + name + ".pcap")
		if err != nil {
			t.Fatal(err)
		}
		lines := map[int]string{}
		err = Read(f, func(p *Packet) error {
			lines[p.Num] = p.Line()
			return nil
		})
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for num, text := range want {
			if !strings.Contains(lines[num], text) {
				t.Errorf("%s, frame %d: no %q in\n%s", name, num, text, lines[num])
			}
		}
	}
}
