package cmprobe

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

const addr = tooltest.Server4 + ":4711"

// answer makes d answer one request with f.
func answer(t *testing.T, d *roce.Device, f func(*roce.ConnRequest)) {
	t.Helper()
	l, err := d.Listen(t.Context(), addr, roce.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		if r, err := l.Accept(t.Context()); err == nil {
			f(r)
		}
	}()
}

func TestProbe(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fault  fault.Config
		answer func(*roce.ConnRequest) // nil: no listener
		want   Result
		line   string
	}{
		{
			name: "accepted",
			answer: func(r *roce.ConnRequest) {
				p := roce.ConnParam{PrivateData: append([]byte("you said "), trim(r.PrivateData())...)}
				r.Accept(context.Background(), roce.AcceptConfig{Param: p})
			},
			want: Result{Verdict: Accepted, Private: []byte("you said hello")},
			line: addr + `: accepted after `,
		},
		{
			name:   "refused",
			answer: func(r *roce.ConnRequest) { r.Reject([]byte("no")) },
			want:   Result{Verdict: Rejected, Reason: 28, Text: "consumer reject", Private: []byte("no")},
			line:   addr + `: rejected, reason 28 (consumer reject) after `,
		},
		{
			name: "nobody listens",
			want: Result{Verdict: Rejected, Reason: 8, Text: "invalid service ID"},
			line: addr + `: rejected, reason 8 (invalid service ID) after `,
		},
		{
			name:  "no answer",
			fault: fault.Config{Tx: fault.Rates{Loss: 1}},
			want:  Result{Verdict: Unreachable, Text: "no answer within 200ms"},
			line:  addr + `: unreachable (no answer within 200ms) after `,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sd, cd := tooltest.Pair(t, tt.fault)
			if tt.answer != nil {
				answer(t, sd, tt.answer)
			}
			wait := 10 * time.Second
			if tt.fault.Enabled() {
				wait = 200 * time.Millisecond
			}
			r, err := Probe(t.Context(), cd, addr, []byte("hello"), wait)
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict != tt.want.Verdict || r.Reason != tt.want.Reason || r.Text != tt.want.Text || string(r.Private) != string(tt.want.Private) {
				t.Errorf("%+v, want %+v", r, tt.want)
			}
			if !strings.HasPrefix(r.String(), tt.line) {
				t.Errorf("%q, want %q…", r, tt.line)
			}
		})
	}
}

func TestProbeInterrupted(t *testing.T) {
	_, cd := tooltest.Pair(t, fault.Config{Tx: fault.Rates{Loss: 1}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Probe(ctx, cd, addr, nil, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
