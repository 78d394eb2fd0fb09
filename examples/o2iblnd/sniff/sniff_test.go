package sniff_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/goroce/roce/examples/o2iblnd/sniff"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// units returns the messages and refusals in a capture.
func units(t *testing.T, file string) []*sniff.Unit {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := sniff.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// bad counts the messages of each capture that the test peer damaged on purpose.
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
