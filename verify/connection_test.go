package verify

import (
	"bytes"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/pcap"
)

// withoutCM judges a scene without its handshake, captured at one end. It tells the Verifier of the connection with Connected.
func (s *scene) withoutCM(at int, cfg Config, change func(*Connection)) *Report {
	s.t.Helper()
	s.drop("req", "req-again", "rep", "rtu", "dreq", "drep")
	c := Connection{MTU: mtu}
	for i := range c.Ends {
		c.Ends[i] = ConnectionEnd{Addr: addresses[i].Addr(), QPN: numbers[i], PSN: start[i], Timeout: ackTimeout, Retries: 2, Depth: 4}
	}
	if change != nil {
		change(&c)
	}
	cfg.Directions = true
	v, err := New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	v.Connected(c)
	in, err := pcap.NewReader(bytes.NewReader(s.capture(at)))
	if err != nil {
		s.t.Fatal(err)
	}
	for {
		rec, err := in.Next()
		if err == io.EOF {
			return v.Done()
		}
		if err != nil {
			s.t.Fatal(err)
		}
		v.Add(0, &rec)
	}
}

// With the parameters of Connected the Verifier judges as with those of a handshake: the right scene has no findings, and packets that
// break the parameters have.
func TestConnected(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Connection)
		broken RuleID // "": none
	}{
		{"right", nil, ""},
		{"another start", func(c *Connection) { c.Ends[active].PSN = start[active].Add(-100) }, "psn-start"},
		{"a longer timeout", func(c *Connection) { c.Ends[active].Timeout = 20 }, "repeat-early"},
		{"no repetition", func(c *Connection) { c.Ends[active].Retries = 0 }, "repeat-count"},
		{"unknown", func(c *Connection) { c.Ends[active].Retries, c.Ends[active].Timeout, c.Ends[active].Depth = -1, 0, -1 }, ""},
		{"no READ", func(c *Connection) { c.Ends[active].Depth = 0 }, "read-depth"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := rightScene(t).withoutCM(active, Config{}, test.change)
			broken := map[RuleID]bool{}
			for i := range r.Findings {
				f := &r.Findings[i]
				if f.Departure == nil || f.Rule == repeatEarly { // the scene has M = 1, as this stack's probes
					broken[f.Rule] = true
				}
				for _, n := range f.Frames {
					if n.Number == 0 {
						t.Errorf("a frame without a number: %s", f)
					}
				}
			}
			if test.broken == "" && len(broken) > 0 || test.broken != "" && !broken[test.broken] {
				t.Errorf("broken: %v, want %q", broken, test.broken)
			}
			for _, l := range r.Limits {
				if l.Kind == LimitBeginning && l.Flow == "10.0.0.1 > 10.0.0.2 qp 0x22" {
					t.Errorf("%+v", l)
				}
			}
		})
	}
}

// If a second NAK comes before the requester has gone back to the PSN of the first one, the requester may still go back to that.
func TestReplacedNAK(t *testing.T) {
	s := rightScene(t)
	s.until("behind-2")
	s.ack("nak", 10, bth.NAKSequence, 5)
	s.ack("late-ack", 10, bth.AckNoCredits, 6)
	s.ack("nak-2", 11, bth.NAKSequence, 6)
	s.request("lost-again", active, 10, bth.RCSendOnly, bth.Fields{Payload: bytesOf(8)})
	s.request("behind-again", active, 11, bth.RCSendOnly, bth.Fields{Payload: bytesOf(12)})
	if _, byRule := unexplained(s.judge(active, Config{})); byRule[goBackPlace] != 0 {
		t.Errorf("found %v", byRule)
	}
}

// A NAK of a PSN after a READ implies that the responder has answered the READ, as a later response does. If a response is missing, the
// requester may request the rest at once.
func TestNAKBeyondRead(t *testing.T) {
	s := rightScene(t)
	s.until("read2-2")
	s.step("read2-1").at = s.step("read2").at + 10*time.Microsecond
	at := s.step("read2-2").at
	s.request("read2-behind", active, 21, bth.RCSendOnly, bth.Fields{Payload: bytesOf(4)}).at = at + 10*time.Microsecond
	s.ack("read2-nak", 20, bth.NAKSequence, 13).at = at + 20*time.Microsecond
	s.request("read2-rest", active, 18, bth.RCReadRequest, bth.Fields{RETH: reth(0x30000+mtu, 1976)}).at = at + 30*time.Microsecond
	r := s.judge(active, Config{Rules: []RuleID{repeatEarly}})
	if all, _ := unexplained(r); len(all) != 0 || len(r.Findings) != 0 {
		t.Errorf("found %v %v", all, r.Findings)
	}
}

// Slack is for captures at some distance from the hosts. Within this time a requester may not have received a NAK yet, and several marked
// packets may arrive before the first CNP leaves.
func TestSlack(t *testing.T) {
	slack := Config{Slack: 50 * time.Millisecond}
	wrong := func() *scene {
		s := rightScene(t)
		s.until("nak")
		s.request("another", active, 9, bth.RCFetchAdd, bth.Fields{AtomicETH: &bth.AtomicETHFields{VA: 0x1000, RKey: 0x4411, Swap: 1}}).at = s.step("nak").at + time.Millisecond
		return s
	}
	if _, byRule := unexplained(wrong().judge(active, Config{})); byRule[goBackPlace] != 1 {
		t.Errorf("without slack: %v", byRule)
	}
	if _, byRule := unexplained(wrong().judge(active, slack)); len(byRule) != 0 {
		t.Errorf("with slack: %v", byRule)
	}
	early := func() *scene {
		s := rightScene(t)
		s.step("unready-again").at, s.step("ready").at = s.step("rnr").at+20*time.Microsecond, s.step("rnr").at+40*time.Microsecond
		return s
	}
	if _, byRule := unexplained(early().judge(active, Config{Rules: []RuleID{rnrEarly}})); byRule[rnrEarly] != 1 {
		t.Errorf("without slack: %v", byRule)
	}
	if _, byRule := unexplained(early().judge(active, Config{Rules: []RuleID{rnrEarly}, Slack: time.Millisecond})); len(byRule) != 0 {
		t.Errorf("with slack: %v", byRule)
	}
	marks := func() *scene {
		s := rightScene(t)
		s.step("marked-2").at = s.step("marked").at + time.Microsecond // both arrive before the first CNP
		return s
	}
	if _, byRule := unexplained(marks().judge(passive, Config{Rules: []RuleID{cnpUnmarked}})); byRule[cnpUnmarked] != 1 {
		t.Errorf("without slack: %v", byRule)
	}
	if _, byRule := unexplained(marks().judge(passive, Config{Rules: []RuleID{cnpUnmarked}, Slack: time.Millisecond})); len(byRule) != 0 {
		t.Errorf("with slack: %v", byRule)
	}
	s := marks()
	for i := range 2 {
		s.add([]string{"cnp-3", "cnp-4"}[i], passive, s.step("cnp").f)
	}
	if _, byRule := unexplained(s.judge(passive, Config{Rules: []RuleID{cnpUnmarked}, Slack: time.Millisecond})); byRule[cnpUnmarked] != 2 {
		t.Errorf("more CNPs than marks: %v", byRule)
	}
}

// Timed gets each time of the report, with the requester.
func TestTimed(t *testing.T) {
	count := map[LatencyKind]int{}
	r := rightScene(t).judge(active, Config{Timed: func(requester netip.Addr, kind LatencyKind, d time.Duration) {
		if kind == RNRWait && (requester != addresses[active].Addr() || d < 10*time.Millisecond) {
			t.Errorf("the RNR wait of %v is %v", requester, d)
		}
		count[kind]++
	}})
	if len(r.Times) != len(latencyKinds) {
		t.Errorf("%d times", len(r.Times))
	}
	for _, l := range r.Times {
		if count[l.Kind] != l.Count {
			t.Errorf("%s: %d times, the report has %d", l.Kind, count[l.Kind], l.Count)
		}
	}
}
