package fault_test

import (
	"flag"
	"fmt"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
)

// A wire that loses one percent of the packets at random, in both directions, and the first
// transmission of one particular packet.
func Example() {
	a, _ := mem.Pair(mem.Config{})
	p, err := fault.Wrap(a, fault.Config{
		Seed: 7,
		Tx:   fault.Rates{Loss: 0.01},
		Rx:   fault.Rates{Loss: 0.01},
		Rules: []fault.Rule{{
			Action: fault.Drop, Dir: fault.Tx,
			Op: fault.Is(bth.RCWriteLast), PSN: fault.Is(bth.PSN(0x10)), Iter: 1,
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	fmt.Println(p.Info().Notes[0])
	// Output: faults: --loss 0.01 --fault drop,tx,op=RC_WRITE_LAST,psn=0x10,iter=1 --seed 7
}

// A configuration from command-line flags.
func ExampleConfig_RegisterFlags() {
	var c fault.Config
	fs := flag.NewFlagSet("example", flag.ContinueOnError)
	c.RegisterFlags(fs)
	fs.Parse([]string{"--loss", "1%", "--reorder", "rx=0.05", "--fault", "ecn,tx,nth=3", "--seed", "42"})
	fmt.Println(c.String())
	// Output: --loss 0.01 --reorder rx=0.05 --fault ecn,tx,nth=3 --seed 42
}
