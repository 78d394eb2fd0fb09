package pcap_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/roce/link/pcap"
)

// TestTsharkReadsSplit checks with tshark the packets that a Reader makes of captures with
// super-packets: every packet is a RoCE packet with right checksums.
func TestTsharkReadsSplit(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	file := filepath.Join(t.TempDir(), "split.pcap")
	w, err := pcap.Create(file, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface(pcap.Interface{LinkType: pcap.Ethernet}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range []string{"udp4-client", "udp6-server", "raw4-client", "raw6-server"} {
		in, err := os.Open("../../testdata/pcaps/host/" + name + ".pcap")
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		r, err := pcap.NewReader(in)
		if err != nil {
			t.Fatal(err)
		}
		for ; ; n++ {
			rec, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Write(&rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tshark, "-r", file, "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
		"-Y", "infiniband && !(udp.checksum.status == 0) && !(ip.checksum.status == 0) && !_ws.malformed").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(out), "\n"); got != n {
		t.Errorf("tshark finds %d of %d packets right:\n%s", got, n, out)
	}
}
