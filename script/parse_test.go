package script

import (
	"errors"
	"strings"
	"testing"
)

// Errors name the line and the column of the mistake, and say what to write instead.
func TestErrors(t *testing.T) {
	const head = "connect verbs rc recv=1\n"
	for _, tt := range []struct{ text, want string }{
		{"", "x.script:1:1: the script has no steps"},
		{"connect cm port=70000\n", "x.script:1:17: port=70000: at most 65535"},
		{"connect cm mtu=1000\n", "x.script:1:16: mtu=1000: want 256"},
		{"connect cm port=1 port=2\n", "x.script:1:19: port is there twice"},
		{"connect verbs retry=8\n", "x.script:1:21: "},
		{"loop 2 {\nconnect cm\n}\n", "x.script:2:1: connect cannot be in a loop"},
		{head + "send SEND_ONLY pkey=0x10000\n", "x.script:2:21: pkey=0x10000 does not fit into 16 bits"},
		{head + "send SEND_ONLY psn=0x1000000\n", "x.script:2:20: psn=0x1000000 does not fit into 24 bits"},
		{head + "send SEND_ONLY psn=+1 psn=+2\n", "x.script:2:23: psn is there twice"},
		{head + "send SEND_ONLY ackreq ackreq=1\n", "x.script:2:23: ackreq is there twice"},
		{head + "send REQ retrycount=9\n", "x.script:2:21: retrycount=9 does not fit"},
		{head + "expect ACK msn=0x1000000\n", "x.script:2:16: msn=0x1000000 does not fit into 24 bits"},
		{head + "expect ACK syndrome=0..0x100\n", "x.script:2:24: syndrome=0x100 does not fit into 8 bits"},
		{head + "expect SEND_ONLY u16@4=0x10000\n", "x.script:2:24: u16=0x10000 does not fit into 16 bits"},
		{head + "expect REJ reason=0x10000\n", "x.script:2:19: reason=0x10000 does not fit"},
		{head + "expect ACK within 1s after 2s\n", "x.script:2:12: within 1s ends before after 2s begins"},
		{head + "expect ACK within 1s within 2s\n", "x.script:2:22: within is there twice"},
		{head + "send SEND_ONLY u64=$mem.vaa\n", "x.script:2:20: there is no $mem.vaa: want one of $mem.va"},
		{head + "send SEND_ONLY u64=$peer\n", "x.script:2:20: there is no $peer: want one of $peer.qpn"},
		{head + "expect ACK as a\nset n=$a.msnn\n", `x.script:3:7: $a has no field "msnn"`},
		{head + "expect ACK as a\nset n=$a.va\n", `x.script:3:7: $a has no field "va"`},
		{head + "expect ACK as a\nset n=$a\n", "x.script:3:7: $a is a packet"},
		{head + "expect REP as a\nset n=$a.psn\n", `x.script:3:7: $a has no field "psn"`},
		{head + "set n=1\nset m=$n.psn\n", `x.script:3:7: $n is a number`},
		{"wait 5ms\n", "x.script:1:1: the script has no connect or accept"},
		{"send SEND_ONLY\n", "x.script:1:1: send comes before connect or accept"},
		{"connect\n", "x.script:1:1: want connect cm"},
		{"accept verbs\n", "x.script:1:1: want connect cm"},
		{"connect verbs rd\n", `x.script:1:15: "rd" is no transport`},
		{"connect verbs rc mtu=7\n", `x.script:1:18: verbs has no setting "mtu"`},
		{"connect verbs rc access=all\n", "x.script:1:25: access=all: want some of write"},
		{head + head, "x.script:2:1: the script has a connection already"},
		{head + "sent SEND_ONLY\n", `x.script:2:1: unknown statement "sent"`},
		{head + "send SEND_OLNY\n", `x.script:2:6: there is no packet "SEND_OLNY"`},
		{head + "send SEND_ONLY psn=+\n", `x.script:2:21: "+": a number is missing`},
		{head + "send SEND_ONLY psn=one\n", `x.script:2:20: "one" is no number`},
		{head + "send WRITE_ONLY va=+1\n", "x.script:2:20: va is not relative to anything"},
		{head + "send SEND_ONLY size=1\n", `x.script:2:16: packets have no field "size"`},
		{head + "send SEND_ONLY icrc=wrong\n", `x.script:2:21: icrc is ok or bad, not "wrong"`},
		{head + "send SEND_ONLY hex=0g\n", `x.script:2:20: "0g" is not hexadecimal`},
		{head + "send SEND_ONLY len=$n\n", "x.script:2:20: $n has no value here"},
		{head + "send SEND_ONLY as run of 100\n", `x.script:2:26: "100": want a number from 1 to 64`},
		{head + "send SEND_ONLY from mars\n", "x.script:2:16: want from peer, stranger, router"},
		{head + "send SEND_ONLY va=1\n", "x.script:2:16: RC SEND_ONLY has no header with va"},
		{head + "send op:0xe4 rkey=1\n", "x.script:2:14: op:0xe4 has no header with rkey"},
		{head + "send ACK dmalen=1\n", "x.script:2:10: RC ACKNOWLEDGE has no header with dmalen"},
		{head + "expect SEND_ONLY|ACK value=1\n", "x.script:2:22: SEND_ONLY|ACK has no header with value"},
		{head + "send REQ ackreq\n", "x.script:2:10: unknown word \"ackreq\""},
		{head + "send REQ colour=1\n", `x.script:2:10: REQ has no field "colour"`},
		{head + "raw 00 0\n", `x.script:2:8: "0" is not hexadecimal`},
		{head + "expect ACK|REP\n", "x.script:2:8: a packet of the connection and a message"},
		{head + "expect ACK psn=+0..4\n", `x.script:2:20: "+0..4": both ends of a range`},
		{head + "expect ACK within 5\n", `x.script:2:19: "5" is no time like 50ms`},
		{head + "expect ACK whatever\n", `x.script:2:12: unknown word "whatever"`},
		{head + "expect ACK as mem\n", "x.script:2:15: $mem belongs to the connection"},
		{head + "expect nothing\n", "x.script:2:8: want expect nothing for TIME"},
		{head + "expect any order {\nACK\n", "x.script:2:1: the block is not closed"},
		{head + "expect any order {\n}\n", "x.script:2:1: the block has no packets"},
		{head + "loop 0 {\n}\n", `x.script:2:6: "0": want a number from 1`},
		{head + "loop 2 {\nwait 1ms\n", "x.script:2:1: the block is not closed"},
		{head + "}\n", "x.script:2:1: there is no block to close"},
		{head + "outcome nothing\n", `x.script:2:1: want outcome "text"`},
		{head + "outcome \"nothing\" or\n", `x.script:2:1: want outcome "text"`},
		{head + "outcome \"nothing\" \"ERR\"\n", `x.script:2:1: want outcome "text"`},
		{head + "outcome \"nothing\n", "x.script:2:9: the quotation mark is not closed"},
		{"on rxe: pass\n", "x.script:1:1: a variant needs a statement before it"},
		{head + "on rxe pass\n", "x.script:2:1: want on PEER: STATEMENT: the colon is missing"},
		{head + "on rxe:\n", "x.script:2:4: a statement is missing behind the colon"},
		{head + "wait 1h\n", "x.script:2:6: 1h0m0s: want more than 0 and at most"},
		{head + "post CALL len=1\n", `x.script:2:6: "CALL": want FETCH_ADD, READ, SEND,`},
		{head + "recv 99\n", `x.script:2:6: "99": want a number from 1 to 16`},
		{head + "send SEND_ONLY pkey=0x10000\n", "x.script:2:21: pkey=0x10000 does not fit into 16 bits"},
		{head + "send SEND_ONLY sport=0\n", "x.script:2:22: sport=0: 0 is no port"},
		{head + "expect ACK psn=+4..+1\n", "x.script:2:16: psn: the range ends before it begins"},
		{head + "expect ACK psn=+0..-1\n", "x.script:2:16: psn: the range ends before it begins"},
		{head + "expect ACK psn=5..4\n", "x.script:2:16: psn: the range ends before it begins"},
		{head + "expect ACK msn=!0x11..0x10\n", "x.script:2:17: msn: the range ends before it begins"},
		{head + "expect ACK psn=+0..+0x800000\n", "x.script:2:16: psn: a PSN is at most 8388608 behind and 8388607 ahead"},
		{head + "expect ACK msn=0x1000000\n", "x.script:2:16: msn=0x1000000 does not fit into 24 bits"},
		{head + "expect REP rnrretrycount=7..6\n", "x.script:2:26: rnrretrycount: the range ends before it begins"},
		{head + "wait 1ms\x01\n", "x.script:2:9: the control character U+0001 is no text"},
		{head + "wait 1ms \u0085\n", "x.script:2:10: the control character U+0085 is no text"},
		{head + "wait\r1ms\n", "x.script:2:5: a carriage return within a line"},
		{head + "wait 1ms # \xff\n", "x.script:2:12: byte 0xff is no text: a script is UTF-8"},
		{"\xff\xfec\x00o\x00", "x.script:1:1: byte 0xff is no text: a script is UTF-8"},
		{head + "wait\u00a01ms\n", `x.script:2:1: unknown statement "wait\u00a01ms"`},
		{head + "title \u201cx\u201d\n", `x.script:2:1: want title "text"`},
		{head + "raw " + strings.Repeat("00", 2100) + "\n", "x.script:2:1: the line has 4204 bytes, at most 4096"},
		{"rule \"a\"\nrule \"b\"\n", "x.script:2:1: rule is there twice"},
		{strings.Repeat("#", 5000), "x.script:1:1: the line has 5000 bytes"},
		{head + strings.Repeat("loop 1 {\n", 20), "x.script:9:1: blocks are nested deeper"},
	} {
		_, err := Parse("x.script", tt.text)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%q:\n  got  %v\n  want %s", tt.text, err, tt.want)
		}
		if e := (*Error)(nil); err != nil && !errors.As(err, &e) {
			t.Errorf("%q: the error has no place", tt.text)
		}
	}
}

// The parser accepts the line ends of other systems, a byte order mark, tabs, and letters of any alphabet.
func TestForms(t *testing.T) {
	const text = "# Über alles.\ntitle \"日本 \u2026\"\nconnect verbs rc\nloop 2 {\n  wait 1ms # ok\n}\nexpect ACK psn=-1..+1 msn=0..0xffffff\n"
	want, err := Parse("x.script", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{
		"\uFEFF" + text, strings.ReplaceAll(text, "\n", "\r\n"), strings.ReplaceAll(text, " ", "\t"), strings.ReplaceAll(text, "\n", "  \t\r\n"),
		strings.TrimSuffix(text, "\n"), text + "\n\r\n\t",
	} {
		s, err := Parse("x.script", form)
		if err != nil {
			t.Errorf("%q: %v", form, err)
			continue
		}
		if s.Title != want.Title && s.Title != "日本\t\u2026" || len(s.Steps) != len(want.Steps) || s.Steps[2].Pos != want.Steps[2].Pos || s.About == "" {
			t.Errorf("%q: title %q, about %q, %d steps, the last at %v", form, s.Title, s.About, len(s.Steps), s.Steps[len(s.Steps)-1].Pos)
		}
	}
}

// A variant replaces the statement before it. If several variants apply to a peer, the first one counts.
func TestVariants(t *testing.T) {
	s, err := Parse("x.script", `# About it.
connect verbs rc
expect ACK psn=+0
  on rxe 6.1: dies          # it panics
  on rxe: expect ACK psn=+1 # it counts from 1
outcome "a" or "c"
  on us: outcome "b" warns
`)
	if err != nil {
		t.Fatal(err)
	}
	if s.About != "About it." || len(s.Steps) != 3 || len(s.Steps[1].Variants()) != 2 {
		t.Fatalf("%q, %d steps", s.About, len(s.Steps))
	}
	for _, tt := range []struct {
		peer, step, outcome, why string
		kills, warns, departs    bool
	}{
		{"adapter", "expect ACK psn=+0", "a or c", "", false, false, false},
		{"rxe-6.1", "dies", "a or c", "it panics", true, false, true},
		{"rxe 7", "expect ACK psn=+1", "a or c", "it counts from 1", false, false, true},
		{"us", "expect ACK psn=+0", "b", "", false, true, true},
	} {
		p, err := ParsePeer(tt.peer)
		if err != nil {
			t.Fatal(err)
		}
		departs, why := s.Departs(p)
		outcome := strings.Join(s.Expected(p), " or ")
		if got := s.Steps[1].For(p).Text; got != tt.step || outcome != tt.outcome || s.Kills(p) != tt.kills || s.Warns(p) != tt.warns || departs != tt.departs || why != tt.why {
			t.Errorf("%s: %q, outcome %q, kills %v, warns %v, departs %v: %q", tt.peer, got, outcome, s.Kills(p), s.Warns(p), departs, why)
		}
	}
	if _, err := ParsePeer("-"); err == nil {
		t.Error("a peer without a kind")
	}
}

// FuzzParse: no text makes the parser panic or hang, and each error has a position in the text.
func FuzzParse(f *testing.F) {
	f.Add("connect verbs rc recv=1\nsend SEND_ONLY psn=+1 ackreq len=100\nexpect NAK|ACK psn=+0..+1 msn=!3 within 5ms as x\n  on rxe 6.1: pass # why\nloop 3 {\nset n=$x.psn-$i\n}\n")
	f.Add("accept cm port=1 private=\"a b\"\nexpect any order {\nREAD_REQUEST va=*\nSEND_ONLY hex=00\n}\nsend REP mtu=3 primary.hoplimit=1\nraw 0001 noicrc\nexpect no message for 1ms\n")
	f.Add("connect oob ud\nexpect nothing for 1ms\noutcome \"x\" warns\ndies\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("x.script", text)
		if err == nil {
			s.Walk(func(st *Step) {
				if st.Pos.Line < 1 || st.Pos.Col < 1 || st.do == nil {
					t.Errorf("%q: a step at %v", text, st.Pos)
				}
			})
			return
		}
		e := (*Error)(nil)
		if !errors.As(err, &e) || e.Pos.Line < 1 || e.Pos.Col < 1 || e.Pos.Line > strings.Count(text, "\n")+1 {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// The parser accepts repeated fields of the payload, digits in either case, and variables for packets of several kinds.
func TestRight(t *testing.T) {
	const head = "connect verbs rc recv=1\n"
	for _, text := range []string{
		"send SEND_ONLY u8=1 u8=2 len=1 len=2 hex=0A hex=0b\n",
		"expect ACK psn=!3 psn=!4 as a\nset n=$a.psn m=$a.msn\n",
		"expect READ_REQUEST|ACK as a\nset n=$a.va m=$a.syndrome k=$a.u32@8\n",
		"expect ANY as a\nset n=$a.va m=$a.syndrome\n",
		"expect ACK as a\n  on us: expect READ_REQUEST as a\nset n=$a.va\n",
		"expect ACK as a\nset a=1\nset n=$a m=$a.psn\n",
		"expect REP as a\nset n=$a.startingpsn\n",
		"set n=$own.psn+0x1000000\nsend SEND_ONLY psn=$own.psn+0x1000000\n",
		"set mem.va=1 mem.rkey=2\nsend WRITE_ONLY va=$mem.va-2\n",
	} {
		if _, err := Parse("x.script", head+text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for name := range mads {
		for _, f := range MADFields(name) {
			if f == "private" {
				continue
			}
			for _, text := range []string{"send " + name + " " + f + "=1\n", "expect " + name + " " + f + "=1 as a\nset n=$a." + f + "\n"} {
				if _, err := Parse("x.script", head+text); err != nil {
					t.Errorf("%q: %v", text, err)
				}
			}
		}
	}
}
