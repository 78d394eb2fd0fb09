package scripted

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce/script"
)

// Each statement does what docs/script.md says, and fails if the packets differ. want is part of the error, "" if there is none.
func TestVerbs(t *testing.T) {
	const two = "connect verbs rc recv=2\nsend READ_REQUEST psn=+0 dmalen=8 together\nsend READ_REQUEST psn=+1 va=$mem.va+8 dmalen=8\n"
	for _, tt := range []struct{ name, text, want string }{
		{"any order", two + "expect any order {\nREAD_RESPONSE_ONLY psn=+1\nREAD_RESPONSE_ONLY psn=+0\n}\n", ""},
		{"any order, one missing", two + "expect any order within 5ms {\nREAD_RESPONSE_ONLY psn=+1\nREAD_RESPONSE_ONLY psn=+0\nACK psn=+7\n}\n",
			"came: nothing within 5ms; expected: ACK psn=+7"},
		{"any order, another", two + "expect any order {\nREAD_RESPONSE_ONLY psn=+1\nREAD_RESPONSE_ONLY psn=+2\n}\n", "expected: READ_RESPONSE_ONLY psn=+1, or READ_RESPONSE_ONLY psn=+2"},
		{"order", two + "expect READ_RESPONSE_ONLY psn=+1\n", "psn is +0"},
		{"eventually", two + "expect READ_RESPONSE_ONLY psn=+1 eventually\n", ""},
		{"eventually never", two + "expect READ_RESPONSE_ONLY psn=+2 eventually within 5ms\n", "nothing within 5ms"},
		{"not sooner", "connect verbs rc\npost SEND len=4\nexpect SEND_ONLY psn=+0 eventually\nsend RNR psn=+0 timer=31\nforget\nexpect SEND_ONLY psn=+0 after 480ms\n", ""},
		{"sooner", "connect verbs rc\npost SEND len=4\nexpect SEND_ONLY psn=+0 eventually\nsend RNR psn=+0 timer=28\nforget\nexpect SEND_ONLY psn=+0 after 480ms\n", "after the script's last packet)"},
		{"sooner, eventually", "connect verbs rc\npost SEND len=4\nexpect SEND_ONLY psn=+0 eventually\nsend RNR psn=+0 timer=28\nforget\nexpect SEND_ONLY psn=+0 after 480ms eventually\n", "after the script's last packet)"},
		{"ranges", two + "expect READ_RESPONSE_ONLY psn=-1..+3 msn=1..1 len=!7\n", ""},
		{"a range that turns out reversed", two + "set n=3\nexpect READ_RESPONSE_ONLY psn=+$n..+1\n", "x.script:5:31: psn: the range ends before it begins"},
		{"a number that turns out reversed", two + "set n=9\nexpect READ_RESPONSE_ONLY len=$n..8\n", "x.script:5:31: len: the range ends before it begins"},
		{"outside of a range", two + "expect READ_RESPONSE_ONLY psn=+1..+3\n", "psn is +0"},
		{"not", two + "expect READ_RESPONSE_ONLY len=!8\n", "len is 8"},
		{"any value", two + "expect READ_RESPONSE_ONLY psn=* msn=*\n", ""},
		{"no such field", two + "expect READ_RESPONSE_ONLY value=1\n", "has no header with value"},
		{"flags", two + "expect READ_RESPONSE_ONLY !ackreq !solicited\n", ""},
		{"a flag that is not set", two + "expect READ_RESPONSE_ONLY ackreq\n", "ackreq is not set"},
		{"captures", two + "expect READ_RESPONSE_ONLY as a\nset n=$a.psn+1 m=$a.u16@2\nexpect READ_RESPONSE_ONLY psn=$n u32@0=0x08090a0b\nset k=$m-0x203\nsend WRITE_ONLY psn=+2 ackreq u8=$k\nexpect ACK msn=3\n", ""},
		{"a payload that ends before", two + "expect READ_RESPONSE_ONLY as a\nset n=$a.u64@4\n", `$a.u64@4: RC READ_RESPONSE_ONLY of 8 bytes has no field "u64@4"`},
		{"hex", two + "expect READ_RESPONSE_ONLY hex=0001020304050607\n", ""},
		{"other hex", two + "expect READ_RESPONSE_ONLY hex=00\n", `hex is "0001020304050607"`},
		{"alternatives", two + "expect NAK|READ_RESPONSE_ONLY\n", ""},
		{"nothing", "connect verbs rc\nsend SEND_ONLY icrc=bad\nexpect nothing for 5ms\n", ""},
		{"something", two + "expect nothing for 5ms\n", "came: READ_RESPONSE_ONLY psn=+0 msn=1 len=8; expected: nothing for 5ms"},
		{"outcome", two + "outcome \"nothing\"\n", "came: READ ONLY +0 8 B msn 1; READ ONLY +1 8 B msn 2; expected: nothing"},
		{"immediate data", "connect verbs rc recv=1\nsend SEND_ONLY_WITH_IMM ackreq imm=7 len=4\noutcome \"ACK +0 msn 1; recv SUCCESS 4 B imm 7\"\n", ""},
		{"no immediate data", "connect verbs rc recv=1\nsend SEND_ONLY ackreq len=4\noutcome \"ACK +0 msn 1; recv SUCCESS 4 B imm 7\"\n", "recv SUCCESS 4 B; expected"},
		{"raw", "connect verbs rc recv=1\nraw 0400ffff 00abcdef 80fffffd 00\nexpect nothing for 5ms\noutcome \"nothing\"\n", ""},
		{"an ACK is no RNR NAK", "connect verbs rc recv=1\nsend SEND_ONLY ackreq len=4\nexpect RNR\n", "another packet"},
		{"a NAK is no ACK", "connect verbs rc recv=1\nsend SEND_ONLY psn=+1 ackreq len=4\nexpect ACK\n", "another packet"},
		{"answers and requests are two sequences", "connect verbs rc recv=1\npost SEND len=4\nsend SEND_ONLY ackreq len=4\nexpect ACK psn=+0 msn=1\nexpect SEND_ONLY psn=+0 len=4\n", ""},
		{"requests have an order", "connect verbs rc\npost WRITE len=2000\nexpect WRITE_LAST\n", "came: WRITE_FIRST"},
		{"times", "connect verbs rc recv=3\nsend SEND_ONLY ackreq len=4 times 3\noutcome \"ACK +0 msn 1; ACK +1 msn 2; ACK +2 msn 3; recv SUCCESS 4 B ×3\"\n", ""},
		{"a run", "connect verbs rc recv=1\nsend SEND_ONLY ackreq len=4 as run of 4\nexpect ACK psn=+0 msn=1\n", ""},
		{"text", "connect verbs rc\nsend WRITE_ONLY ackreq text=\"two words\"\nexpect ACK\nsend READ_REQUEST dmalen=9\nexpect READ_RESPONSE_ONLY text=\"two words\"\n", ""},
		{"dies", "connect verbs rc\ndies\n", "the peer was expected to die of this"},
		{"disconnect without a connection manager", "connect verbs rc\ndisconnect\n", "only a connection of the connection manager"},
		{"variants of us", "connect verbs rc\ndies\n  on rxe: pass\n  on us: pass\n", ""},
		{"no program", "connect cm\n", "does not say which program"},
		{"no such program", "peer \"xping -s\"\nconnect cm\n", `"xping" is none of rping and perftest's`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := script.Parse("x.script", tt.text)
			if err != nil {
				if tt.want == "" || !strings.Contains(err.Error(), tt.want) {
					t.Fatal(err)
				}
				return
			}
			synctest.Test(t, func(t *testing.T) {
				r := RunSelf(t.Context(), s, script.Options{})
				if tt.want == "" && r.Err != nil || tt.want != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), tt.want)) {
					t.Errorf("got %v, want %q", r.Err, tt.want)
				}
			})
		})
	}
}
