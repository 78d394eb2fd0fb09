package pcap_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/link/pcap"
)

func TestContract(t *testing.T) {
	linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) {
		w := pcap.NewWriter(io.Discard, pcap.NG, 0)
		a, b := mem.Pair(mem.Config{})
		pa, err := pcap.Wrap(a, w, pcap.Options{Live: true})
		if err != nil {
			t.Fatal(err)
		}
		pb, err := pcap.Wrap(b, w, pcap.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pa.Close(); pb.Close() })
		return pa, pb
	})
}

// TestCapture: the file has every sent and received packet with its direction, and no
// abandoned packet.
func TestCapture(t *testing.T) {
	var file bytes.Buffer
	w := pcap.NewWriter(&file, pcap.NG, 0)
	a, b := mem.Pair(mem.Config{})
	now := time.Unix(1700000000, 42)
	p, err := pcap.Wrap(a, w, pcap.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	out := linktest.Path(t, false, a.Info().MAC, b.Info().MAC)
	in := linktest.Path(t, true, b.Info().MAC, a.Info().MAC)
	linktest.Put(p, out, 1, nil)
	linktest.Send(t, p, out, 2, make([]byte, 64))
	linktest.Put(p, out, 3, nil)
	p.Flush()
	linktest.Send(t, b, in, 4, make([]byte, 128))
	b.Flush()
	linktest.Collect(t, p, 1)
	p.Close()

	r, err := pcap.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		psn bth.PSN
		dir pcap.Direction
	}{{2, pcap.Out}, {4, pcap.In}} {
		rec, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		data, layout, ok := rec.Frame()
		if !ok {
			t.Fatalf("%+v is no frame", rec)
		}
		psn, _ := linktest.Check(t, layout, link.Frame{Data: data})
		if psn != want.psn || rec.Direction != want.dir || !rec.Time.Equal(now) {
			t.Errorf("captured PSN %v %v at %v, want %v %v", psn, rec.Direction, rec.Time, want.psn, want.dir)
		}
	}
	if rec, err := r.Next(); err != io.EOF {
		t.Errorf("then %+v, %v, want the end", rec, err)
	}
}

// TestLive: with Options.Live each packet is in the file after Flush.
func TestLive(t *testing.T) {
	var file bytes.Buffer
	a, b := mem.Pair(mem.Config{})
	p, err := pcap.Wrap(a, pcap.NewWriter(&file, pcap.Classic, 0), pcap.Options{Live: true})
	if err != nil {
		t.Fatal(err)
	}
	linktest.Send(t, p, linktest.Path(t, false, a.Info().MAC, b.Info().MAC), 2, nil)
	p.Flush()
	if file.Len() < 24+16+58 {
		t.Errorf("%d bytes in the file after Flush", file.Len())
	}
}

// TestNoHeaders: a capture on a driver that leaves the headers to the kernel
// has headers nevertheless, with the Identification that the ICRC was computed for.
func TestNoHeaders(t *testing.T) {
	for _, seen := range []bool{false, true} {
		var file bytes.Buffer
		a, b := mem.Pair(mem.Config{})
		p, err := pcap.Wrap(linktest.Bare(a, seen), pcap.NewWriter(&file, pcap.NG, 0), pcap.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, v6 := range []bool{false, true} {
			for psn := range bth.PSN(3) {
				linktest.Send(t, p, linktest.Path(t, v6, a.Info().MAC, b.Info().MAC), psn, make([]byte, 64))
				linktest.Send(t, b, linktest.Path(t, v6, b.Info().MAC, a.Info().MAC), psn, make([]byte, 64))
			}
			p.Flush()
			b.Flush()
			linktest.Collect(t, p, 3)
		}
		p.Close()
		r, err := pcap.NewReader(&file)
		if err != nil {
			t.Fatal(err)
		}
		records := 0
		for ; ; records++ {
			rec, err := r.Next()
			if err == io.EOF {
				break
			}
			data, layout, ok := rec.Frame()
			if err != nil || !ok || layout != frame.LayoutIP {
				t.Fatalf("%+v, %v", rec, err)
			}
			if psn, _ := linktest.Check(t, layout, link.Frame{Data: data}); psn > 2 {
				t.Errorf("PSN %v", psn)
			}
		}
		if records != 12 {
			t.Errorf("%d records, want 12", records)
		}
	}
}
