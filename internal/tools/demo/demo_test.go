package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/roce/internal/tools/capcheck"
	"github.com/goroce/roce/internal/tools/ladder"
)

func TestRun(t *testing.T) {
	for _, kind := range Links() {
		t.Run(kind, func(t *testing.T) { testRun(t, kind) })
	}
}

func testRun(t *testing.T, kind string) {
	c := Config{Rounds: 20, Loss: 0.05, Seed: 2, Capture: filepath.Join(t.TempDir(), "demo.pcapng"), Link: kind}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Phases) != 2 || r.Phases[0].Lost != 0 || r.Phases[1].Lost == 0 {
		t.Errorf("phases: %+v", r.Phases)
	}
	for _, p := range r.Phases {
		var again uint64
		for i, row := range p.Rows {
			if row.Name != operations[i].name || row.Rounds != c.Rounds || row.Median <= 0 || row.P99 < row.Median {
				t.Errorf("loss %v: %+v", p.Loss, row)
			}
			again += row.Retransmitted
		}
		if len(p.Rows) != len(operations) || p.Loss > 0 && again == 0 {
			t.Errorf("loss %v: %d operations, %d packets sent again", p.Loss, len(p.Rows), again)
		}
	}

	// The READ takes four packets. If the middle one is lost, the client sends the request again.
	if got := shape(r.Read); got != "READ_REQUEST READ_RESPONSE_FIRST READ_RESPONSE_MIDDLE READ_RESPONSE_LAST" {
		t.Errorf("READ: %s", got)
	}
	if got := shape(r.LossyRead); !strings.HasPrefix(got, "READ_REQUEST READ_RESPONSE_FIRST READ_RESPONSE_MIDDLE(lost) ") ||
		!strings.Contains(got, "READ_REQUEST(again)") {
		t.Errorf("lossy READ: %s", got)
	}

	report := capcheck.New(c.Capture)
	if err := report.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !report.OK() || uint64(report.RoCE) != r.Packets {
		t.Errorf("capture: %+v, want %d good packets", report, r.Packets)
	}
	if b, err := json.Marshal(r); err != nil || !strings.Contains(string(b), `"operation":"RDMA_READ"`) {
		t.Errorf("JSON %s, %v", b, err)
	}

	var text strings.Builder
	if err := r.WriteText(&text, strings.ToUpper); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"TWO SOFTWARE RDMA NICS", "connected by the connection manager", "ON A GOOD WIRE", "LOSES 5 % OF THE PACKETS",
		"CMP_AND_SWP", "the data of all 180 operations verified", "|-- READ_REQUEST psn 0x", "  lost\n", c.Capture,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// shape lists the opcodes of a ladder, with their notes.
func shape(steps []ladder.Step) string {
	var s []string
	for _, step := range steps {
		op, _, _ := strings.Cut(step.Label, " ")
		if step.Note != "" {
			op += "(" + step.Note + ")"
		}
		s = append(s, op)
	}
	return strings.Join(s, " ")
}

func TestRunWithoutCapture(t *testing.T) {
	r, err := Run(t.Context(), Config{Rounds: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Read) != 0 || r.Capture != "" {
		t.Errorf("%+v", r)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, c := range []Config{
		{Rounds: 0},
		{Rounds: 1, Loss: 1},
		{Rounds: 1, Link: "pigeon"},
		{Rounds: 1, Loss: -0.1},
		{Rounds: 1, Capture: filepath.Join(t.TempDir(), "no", "such", "folder.pcap")},
	} {
		if _, err := Run(t.Context(), c); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
}

// connected returns a connected pair without a capture.
func connected(t *testing.T) *pair {
	t.Helper()
	p, err := newPair(&Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	if err := p.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// The checks of the demonstration find wrong data.
func TestChecksFindWrongData(t *testing.T) {
	p := connected(t)
	for i := range operations {
		op := operations[i]
		check := op.check
		op.check = func(p *pair, n int) error {
			value := p.value
			p.far.Bytes()[received] ^= 1
			p.far.Bytes()[written+inlineSize-1] ^= 1
			p.near.Bytes()[readable+size-1] ^= 1
			p.near.Bytes()[word] ^= 1
			err := check(p, n)
			if p.value = value; err == nil {
				t.Errorf("%s: wrong data was not noticed", op.name)
			}
			return err
		}
		if _, err := p.do(t.Context(), &op, 0); !errors.Is(err, errWrong) {
			t.Errorf("%s: %v", op.name, err)
		}
		// The operation itself was right: the next atomic expects the current value of the word.
		if op.bytes == 8 {
			p.value = wordValue(p)
		}
	}
}

// The server may answer a repeated READ again after the READ has completed. So no round changes the source of READs, and each round
// reads other data.
func TestReadLeavesItsSource(t *testing.T) {
	p := connected(t)
	before, last := bytes.Clone(p.far.Bytes()), []byte(nil)
	for n := range 2*places + 1 {
		if _, err := p.do(t.Context(), readOperation(), n); err != nil {
			t.Fatal(err)
		}
		if got := p.near.Bytes()[readable:][:size]; bytes.Equal(got, last) {
			t.Errorf("round %d brought what the round before it had", n)
		} else {
			last = bytes.Clone(got)
		}
	}
	if !bytes.Equal(p.far.Bytes(), before) {
		t.Error("the server's memory has changed")
	}
}
