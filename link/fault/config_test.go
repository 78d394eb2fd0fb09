package fault_test

import (
	"errors"
	"flag"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/fault"
)

func parse(args string) (fault.Config, error) {
	var c fault.Config
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c.RegisterFlags(fs)
	err := fs.Parse(strings.Fields(args))
	if err == nil {
		err = c.Validate()
	}
	return c, err
}

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		args string
		want fault.Config
	}{
		{"--seed 0", fault.Config{}},
		{"--loss 0.01 --seed 7", fault.Config{
			Tx: fault.Rates{Loss: 0.01}, Rx: fault.Rates{Loss: 0.01}, Seed: 7}},
		{"--loss tx=0.01 --dup rx=0.5 --corrupt tx=0.1,rx=0.2 --seed 1", fault.Config{
			Tx: fault.Rates{Loss: 0.01, Corrupt: 0.1}, Rx: fault.Rates{Dup: 0.5, Corrupt: 0.2}, Seed: 1}},
		{"--reorder 1 --delay 0.5 --ecn 0.25 --reorder-by 5 --reorder-time 2ms --delay-time 3ms --delay-jitter 4ms --seed 1", fault.Config{
			Tx:        fault.Rates{Reorder: 1, Delay: 0.5, ECN: 0.25},
			Rx:        fault.Rates{Reorder: 1, Delay: 0.5, ECN: 0.25},
			ReorderBy: 5, ReorderTime: 2 * time.Millisecond, DelayTime: 3 * time.Millisecond, DelayJitter: 4 * time.Millisecond, Seed: 1}},
		{"--fault drop,addr=10.0.0.2 --fault dup,rx,addr=fd00::2,iter=1 --seed 0", fault.Config{
			Rules: []fault.Rule{
				{Action: fault.Drop, Addr: fault.Is(netip.MustParseAddr("10.0.0.2"))},
				{Action: fault.Dup, Dir: fault.Rx, Addr: fault.Is(netip.MustParseAddr("fd00::2")), Iter: 1},
			}}},
		{"--fault drop,tx,op=RC_SEND_ONLY,qpn=0x12,psn=0x5,iter=1 --fault ecn,rx,nth=3,count=2 --seed 1", fault.Config{
			Rules: []fault.Rule{
				{Action: fault.Drop, Dir: fault.Tx, Op: fault.Is(bth.RCSendOnly), QPN: fault.Is(bth.QPN(0x12)), PSN: fault.Is(bth.PSN(5)), Iter: 1},
				{Action: fault.ECN, Dir: fault.Rx, Nth: 3, Count: 2},
			}, Seed: 1}},
	} {
		got, err := parse(test.args)
		if err != nil {
			t.Errorf("%s: %v", test.args, err)
			continue
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", test.args, got, test.want)
		}
		if s := got.String(); s != test.args {
			t.Errorf("String() = %q, want %q", s, test.args)
		}
	}
	if got, err := parse("--loss 2%"); err != nil || got.Tx.Loss != 0.02 {
		t.Errorf("--loss 2%%: %+v, %v", got, err)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range []string{
		"--loss 2", "--loss -0.1", "--loss NaN", "--loss x", "--loss up=0.1", "--loss 101%",
		"--reorder-by -1", "--delay-time -1s",
		"--fault", "--fault vanish", "--fault drop=1", "--fault drop,up", "--fault drop,psn=x",
		"--fault drop,psn=0x1000000", "--fault drop,op=NO_SUCH", "--fault drop,colour=1", "--fault drop,iter=300", "--fault drop,addr=10.0.0",
	} {
		if c, err := parse(args); err == nil {
			t.Errorf("%s was accepted as %+v", args, c)
		} else if errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// Rules and flags with numbers and times out of range are refused, and the error names the value.
func TestBadNumbers(t *testing.T) {
	for args, want := range map[string]string{
		"--loss +Inf":                              `rate "+Inf" is not between 0 and 1`,
		"--dup tx=-1%":                             `rate "-1%" is not between 0 and 1`,
		"--reorder 1e400":                          `rate "1e400" is not a number`,
		"--reorder-by -1":                          "reorder-by -1 is negative",
		"--reorder-time -1ns":                      "reorder-time -1ns is negative",
		"--delay-time -1s":                         "delay-time -1s is negative",
		"--delay-jitter -2h":                       "delay-jitter -2h0m0s is negative",
		"--delay-time 9999999h":                    "9999999h",
		"--seed -1":                                "-seed",
		"--seed 18446744073709551616":              "-seed",
		"--fault delay,time=-1ms":                  `time: "-1ms" is not a time`,
		"--fault delay,time=0":                     `time: "0": want more than 0`,
		"--fault delay,time=9223372036854775808ns": `is not a time`,
		"--fault delay,jitter=-1ms":                `jitter: "-1ms" is not a time`,
		"--fault drop,after=-1s":                   `after: "-1s" is not a time`,
		"--fault drop,until=0s":                    `until: "0s": want more than 0`,
		"--fault drop,after=2s,until=2s":           "ends before it begins",
		"--fault drop,p=NaN":                       `p: rate "NaN" is not between 0 and 1`,
		"--fault drop,p=0":                         "the rule would never act",
		"--fault drop,p=1e-999":                    "the rule would never act",
		"--fault drop,p=101%":                      "is not between 0 and 1",
		"--fault drop,nth=0":                       "want 1 or more",
		"--fault drop,every=-3":                    "is not a number",
		"--fault drop,count=16777216":              "is not a number of at most 24 bits",
		"--fault drop,conn=0":                      "want 1 or more",
		"--fault drop,iter=256":                    "iter is not between 0 and 255",
		"--fault drop,rel=-1":                      "is not a number",
		"--fault drop,qpn=0x1000000":               "is not a number of at most 24 bits",
		"--fault dup,copies=0":                     "want 1 or more",
		"--fault reorder,by=-1":                    "is not a number",
		"--fault corrupt,bits=33":                  "more than 32 bits",
		"--fault rewrite,set.psn=0x1000000":        "does not fit the 24 bits",
		"--fault rewrite,set.va=-1":                "is not a number",
	} {
		if c, err := parse(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q; %+v", args, err, want, c)
		}
	}
	c := fault.Config{Hold: -1}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "hold -1 is negative") {
		t.Errorf("%v", err)
	}
}

func TestEnabled(t *testing.T) {
	for args, want := range map[string]bool{"--seed 5": false, "--loss 0.1": true, "--fault drop": true, "--delay-time 1s": false} {
		if c, err := parse(args); err != nil || c.Enabled() != want {
			t.Errorf("%s: Enabled() = %v, %v, want %v", args, c.Enabled(), err, want)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"drop", "dup,tx,op=RC_SEND_ONLY,qpn=0x12,psn=5,iter=1,nth=2,count=3", "pass,rx,tx", "ecn,op=0x81", "drop,addr=::ffff:10.0.0.1", "drop,addr=fe80::1%eth0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := fault.ParseRule(s)
		if err != nil {
			return
		}
		again, err := fault.ParseRule(r.String())
		if err != nil || again.String() != r.String() {
			t.Errorf("%q prints as %q, which parses as %v, %v", s, r.String(), again.String(), err)
		}
	})
}
