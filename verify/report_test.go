package verify

import (
	"encoding/json"
	"encoding/xml"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/internal/junit"
)

var update = flag.Bool("update", false, "write docs/verify-rules.md")

// rulesPreface is docs/verify-rules.md before its tables.
const rulesPreface = `# The rules of pcap verify

Made by ` + "`go test ./verify -run TestRulesPage -update`" + ` from the table in [verify/rules.go](../verify/rules.go). [captures.md](captures.md#verdicts)
tells how to use it. The second column is the section of the InfiniBand Architecture Specification, volume 1; A11, A17 and A19 are its annexes.

Rules with ◆ are applied only where it is known on which host the capture was made (` + "`--at`" + `): elsewhere, what they would find may have been lost on the way.
Rules with ◇ are applied only where the capture has every packet (` + "`--complete`, or `--at` without `--dropped`" + `): elsewhere, one that the capture has lost may explain
what they would find, and they say ` + "`cannot tell: unseen`" + `.
An error is something the standard forbids, a warning something it discourages or that costs speed, a note something worth knowing.

A test breaks each rule in a right dialogue, and that rule alone must be found (TestEachRuleAlone); another shows each departure (TestDepartures). A third
removes packets from right captures, at random and in bursts: nothing may be found (TestDrops).
`

// TestRulesPage: docs/verify-rules.md is what the table of rules generates.
func TestRulesPage(t *testing.T) {
	name := filepath.Join("..", "docs", "verify-rules.md")
	want := rulesPreface + RulesText()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not current: go test ./verify -run TestRulesPage -update", name)
	}
}

// TestTable: the rows of the table are complete and unique.
func TestTable(t *testing.T) {
	seen := map[RuleID]bool{}
	for _, r := range Rules() {
		if seen[r.ID] || r.Section == "" || r.Group == "" || !strings.HasSuffix(r.Sentence, ".") {
			t.Errorf("the row %+v is incomplete, or there twice", r)
		}
		seen[r.ID] = true
	}
	names := map[string]bool{}
	for _, d := range Departures() {
		_, err := os.Stat(filepath.Join("..", d.Doc))
		if names[d.ID] || !seen[d.Rule] || err != nil {
			t.Errorf("departure %+v: there twice, no rule, or %v", d, err)
		}
		names[d.ID] = true
	}
}

// broken returns the report about a scene with an error, a note, a departure, and a warning that is ignored.
func broken(t *testing.T) *Report {
	s := rightScene(t)
	s.step("write-ack").f.AETH.MSN = 1
	s.step("ud").bits = func(b []byte) { b[len(b)-1] = 1 }
	s.again("nak", "nak", 5*time.Microsecond)
	s.step("send-first").bits = func(b []byte) { b[8] |= 1 }
	return s.judge(active, Config{Ignore: []RuleID{headerReserved}})
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := broken(t).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		": 1 error, 1 note, 1 known departure, ",
		"error msn-count (IBTA 9.7.7.1), frame 10, 11, 10.0.0.2 > 10.0.0.1 qp 0x11: The MSN is 1, but the responder has completed 2 messages or more.\n",
		"known: nak-repeated, 1 time from frame 24, rule nak-repeated: ",
		"cannot tell: beginning in 10.0.0.1 > 10.0.0.2 qp 0x40, ",
		"7 repeated: 1 after NAKs, 1 after RNR NAKs, 1 after later responses, 2 after timeouts, 2 behind a repeated one, ",
		"nak-reaction      1  ",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(broken(t))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Findings []struct {
			Rule, Section, Severity, Sentence string
			Frames                            []struct{ Number int }
			Departure                         *struct{ ID, By, Doc string }
		}
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) != 3 {
		t.Fatalf("%d findings: %s", len(r.Findings), b)
	}
	f, known := r.Findings[0], r.Findings[1]
	if f.Rule != "msn-count" || f.Section != "9.7.7.1" || f.Severity != "error" || f.Frames[1].Number != 11 || f.Departure != nil {
		t.Errorf("the first finding is %+v", f)
	}
	if known.Departure == nil || known.Departure.ID != "nak-repeated" || known.Departure.By != "this stack" {
		t.Errorf("the second finding is %+v", known)
	}
}

func TestJUnit(t *testing.T) {
	var b strings.Builder
	if err := broken(t).WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	var suite struct {
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Cases    []junit.Case `xml:"testcase"`
	}
	if err := xml.Unmarshal([]byte(b.String()), &suite); err != nil {
		t.Fatal(err)
	}
	if suite.Tests != len(rules) || suite.Failures != 1 || suite.Skipped != 1 {
		t.Errorf("%d tests, %d failures, %d skipped", suite.Tests, suite.Failures, suite.Skipped)
	}
	for _, c := range suite.Cases {
		if got, want := c.Failure != nil, c.Name == string(msnCount); got != want {
			t.Errorf("%s fails: %v", c.Name, got)
		}
		if got, want := c.Skipped != nil, c.Name == string(headerReserved); got != want {
			t.Errorf("%s is skipped: %v", c.Name, got)
		}
		if got, want := c.Out != "", c.Name == string(headerPadBytes) || c.Name == string(nakRepeated); got != want {
			t.Errorf("%s has the output %q", c.Name, c.Out)
		}
	}
}
