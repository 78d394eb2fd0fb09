package perftest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/goroce/roce/bth"
)

// captured is the record of a Linux ib_send_bw at 10.77.0.2.
const captured = "0000:0001:000022:0d00cf:0000202d:000055a6cb69b000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02:00000000:\x00"

var capturedDest = Dest{OutReads: 1, QPN: 0x22, PSN: 0x0d00cf, RKey: 0x202d, VAddr: 0x55a6cb69b000,
	GID: bth.GID{10: 0xff, 11: 0xff, 12: 10, 13: 77, 15: 2}}

func TestDestRecord(t *testing.T) {
	if len(captured) != DestLen {
		t.Fatalf("the captured record has %d bytes", len(captured))
	}
	if got := string(capturedDest.Append(nil)); got != captured {
		t.Errorf("Append = %q, want %q", got, captured)
	}
	if got, err := ParseDest([]byte(captured)); err != nil || got != capturedDest {
		t.Errorf("ParseDest = %+v, %v, want %+v", got, err, capturedDest)
	}
	full := Dest{LID: 0xffff, OutReads: 0xffff, QPN: 0xffffff, PSN: 0xffffff, RKey: 0xffffffff, VAddr: 1<<64 - 1, SRQN: 0xffffffff}
	for i := range full.GID {
		full.GID[i] = 0xff
	}
	b := full.Append(nil)
	if got, err := ParseDest(b); err != nil || got != full || len(b) != DestLen {
		t.Errorf("ParseDest(%d bytes) = %+v, %v, want %+v", len(b), got, err, full)
	}
}

func TestDestMalformed(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{captured, "", "want lid:out_reads"},
		{captured, strings.Repeat(":", DestLen), "want lid:out_reads"},
		{captured, "0000:0001:000022:0d00cf:0000202d:000055a6cb69b000:00000000\x00", "want lid:out_reads"}, // no GID
		{"00000000:\x00", "00000000\x00", "want lid:out_reads"},
		{"000022", "1000022", `qpn "1000022" is not a number of 24 bits`},
		{"0d00cf", "-00001", `psn "-00001" is not`},
		{"0000202d", "10000202d", "rkey"},
		{"000055a6", "zzzz55a6", "vaddr"},
		{":4d:", ":100:", "gid"},
		{":4d:", "::", "gid"},
		{"0001", "100000000", "out_reads"},
	} {
		b := strings.Replace(captured, tt.old, tt.new, 1)
		if d, err := ParseDest([]byte(b)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %+v, %v; want %q", b, d, err, tt.want)
		}
	}
}

func FuzzParseDest(f *testing.F) {
	f.Add([]byte(captured))
	f.Add([]byte(strings.Repeat("0:", 23)))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDest(b)
		if err != nil {
			if d != (Dest{}) {
				t.Errorf("%q: refused, but %+v", b, d)
			}
			return
		}
		if again, err := ParseDest(d.Append(nil)); err != nil || again != d {
			t.Errorf("%q: %+v, then %+v, %v", b, d, again, err)
		}
	})
}

// This is the binary record that ib_send_bw -R sends over the connection manager.
func TestDestBinary(t *testing.T) {
	d := capturedDest
	d.SRQN = 0x01020304
	b := d.AppendBinary(nil)
	want := "00000000" + "00000001" + "00000022" + "000d00cf" + "0000202d" + "00000000" + "000055a6cb69b000" +
		"00000000000000000000ffff0a4d0002" + "01020304" + "00000000"
	if got := fmt.Sprintf("%x", b); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, err := ParseBinary(b); err != nil || got != d {
		t.Errorf("%+v, %v", got, err)
	}
	for _, harm := range []func([]byte) []byte{
		func(b []byte) []byte { return b[:55] },
		func(b []byte) []byte { b[1] = 1; return b },  // LID
		func(b []byte) []byte { b[8] = 1; return b },  // QPN
		func(b []byte) []byte { b[12] = 1; return b }, // PSN
	} {
		if got, err := ParseBinary(harm(bytes.Clone(b))); err == nil {
			t.Errorf("%+v", got)
		}
	}
}
