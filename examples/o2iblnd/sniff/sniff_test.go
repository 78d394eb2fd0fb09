package sniff_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/examples/o2iblnd/sniff"
	"github.com/goroce/roce/examples/o2iblnd/wire"
	"github.com/goroce/roce/link/pcap"
)

// units returns what is in a capture. Frames that the capture has cut hold none.
func units(t *testing.T, file string) (all []*sniff.Unit) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var a sniff.Assembler
	for {
		rec, err := r.Next()
		if err != nil {
			return all
		}
		data, layout, ok := rec.Frame()
		var p frame.Packet
		if !ok || p.Parse(data, layout) != nil {
			continue
		}
		mad, _ := cm.DecodeMAD(p.Payload())
		if p.Op.Transport().String() != "UD" {
			mad = nil
		}
		if u := a.Packet(&p, mad); u != nil {
			all = append(all, u)
		}
	}
}

// bad counts the messages of a capture that its test peer made wrong on purpose.
var bad = map[string]int{"probe-err-216": 4, "cksum-216": 2, "probe-rej-216": 2, "probe-srvrej-216": 1}

// TestCaptures decodes every message of the captures and encodes it again.
func TestCaptures(t *testing.T) {
	files, _ := filepath.Glob("../../../testdata/pcaps/lnet/*.pcap")
	if len(files) < 20 {
		t.Fatalf("found %d captures", len(files))
	}
	types := map[wire.Type]int{}
	for _, file := range files {
		name := filepath.Base(file[:len(file)-len(".pcap")])
		t.Run(name, func(t *testing.T) {
			all, wrong := units(t, file), 0
			if len(all) == 0 {
				t.Fatal("no message")
			}
			for _, u := range all {
				switch {
				case u.Err != nil:
					wrong++
					t.Logf("%v", u.Err)
				case u.Reject != nil:
					if b := u.Reject.Append(nil); !bytes.Equal(b, u.Bytes) {
						t.Errorf("%v encodes to\n%x, was\n%x", u, b, u.Bytes)
					}
				default:
					types[u.Message.Type]++
					n := u.Message.Len()
					if b := u.Message.Append(nil); !bytes.Equal(b, u.Bytes[:n]) {
						t.Errorf("%v encodes to\n%x, was\n%x", u, b, u.Bytes)
					}
				}
			}
			if wrong != bad[name] {
				t.Errorf("%d messages could not be decoded, want %d", wrong, bad[name])
			}
		})
	}
	for _, want := range []wire.Type{wire.ConnReq, wire.ConnAck, wire.NoOp, wire.Immediate, wire.PutReq, wire.PutNak, wire.PutAck, wire.PutDone, wire.GetReq, wire.GetDone} {
		if types[want] == 0 {
			t.Errorf("no %v in any capture", want)
		}
	}
}
