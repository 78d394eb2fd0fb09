package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/tools/capcheck"
)

// tcpdump captures the traffic of this stack on the interfaces of both ends. The captures have super-packets, and packets without
// checksums because the NIC computes them later.
func TestPcapBesideTraffic(t *testing.T) {
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Skip("tcpdump is not installed")
	}
	a, b := netlab.Pair(t, netlab.Config{})
	for _, link := range []string{"udp", "raw"} {
		for _, addr := range []netip.Addr{a.IP4, a.IP6} {
			t.Run(fmt.Sprintf("%s to %v", link, addr), func(t *testing.T) {
				near, far := capture(t, a), capture(t, b)
				transfer(t, a, b, fmt.Sprintf("-a %v --link %s", addr, link))
				sendMark(t, b, a.IP4)
				reports := [2]*capcheck.Report{near(), far()}
				for i, r := range reports {
					if !r.OK() || r.ICRCGood != r.RoCE || r.RoCE == 0 {
						t.Errorf("end %d: %+v", i, r)
					}
					for _, f := range r.Flows {
						if f.Missing != 0 {
							t.Errorf("end %d: packets are missing: %+v", i, f)
						}
					}
				}
				// tcpdump does not see the packets that driver raw sends.
				if link == "udp" && reports[0].RoCE != reports[1].RoCE {
					t.Errorf("%d packets at one end, %d at the other", reports[0].RoCE, reports[1].RoCE)
				}
				if reports[0].SuperPackets+reports[1].SuperPackets == 0 {
					t.Error("no super-packet was captured")
				}
			})
		}
	}
}

// capture starts tcpdump at one end. stop waits for the mark, ends tcpdump and returns the report on the capture.
func capture(t *testing.T, s *netlab.Side) (stop func() *capcheck.Report) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), s.Interface+".pcap"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	tcpdump := exec.CommandContext(t.Context(), "tcpdump", "-U", "--immediate-mode", "-B", "16384", "-i", s.Interface, "-w", "-",
		"udp dst port 4791 or udp dst port 9")
	log := &announced{ready: make(chan struct{})}
	tcpdump.Stdout, tcpdump.Stderr = file, struct{ io.Writer }{log} // without ReadFrom
	s.Do(t, func() { err = tcpdump.Start() })
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { tcpdump.Wait(); close(ended) }()
	t.Cleanup(func() { tcpdump.Process.Kill(); <-ended })
	select {
	case <-log.ready:
	case <-ended:
		t.Fatalf("tcpdump: %s", log)
	}
	return func() *capcheck.Report {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if b, err := os.ReadFile(file.Name()); err != nil || bytes.Contains(b, []byte(mark)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("tcpdump has not captured the mark")
			}
		}
		tcpdump.Process.Signal(os.Interrupt)
		<-ended
		r := capcheck.New(file.Name())
		if err := r.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r
	}
}

const mark = "that was all"

// sendMark sends the mark, a datagram that shows that all earlier packets have been captured.
func sendMark(t *testing.T, from *netlab.Side, to netip.Addr) {
	t.Helper()
	from.Do(t, func() {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(mark)); err != nil {
			t.Fatal(err)
		}
	})
}

// transfer runs rping from one end to the other.
func transfer(t *testing.T, a, b *netlab.Side, args string) {
	t.Helper()
	if code, out := meet(t, b, a, "rping -s -C 3 "+args, "rping -c -C 3 -S 20000 -V "+args); code != exitOK {
		t.Errorf("client: exit %d, %s", code, out)
	}
}
