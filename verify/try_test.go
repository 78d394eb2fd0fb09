package verify

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func TestTry(t *testing.T) {
	files, _ := filepath.Glob("../testdata/pcaps/*.pcap")
	for _, d := range []string{"host", "lnet"} {
		m, _ := filepath.Glob("../testdata/pcaps/" + d + "/*.pcap")
		files = append(files, m...)
	}
	if f := os.Getenv("F"); f != "" {
		files = []string{f}
	}
	var at []netip.Addr
	if a := os.Getenv("AT"); a != "" {
		at = append(at, netip.MustParseAddr(a))
	}
	for _, f := range files {
		r, err := Files(context.Background(), []string{f}, Config{At: at})
		if err != nil {
			t.Error(err)
			continue
		}
		dep := map[string]int{}
		fmt.Println("==", f, r.Packets)
		n := map[RuleID]int{}
		for i := range r.Findings {
			x := &r.Findings[i]
			if x.Departure != nil {
				dep[x.Departure.ID]++
				continue
			}
			n[x.Rule]++
			if n[x.Rule] < 5 {
				fmt.Println("  ", x)
			}
		}
		fmt.Println("  dep", dep, "n", n)
		if os.Getenv("V") != "" {
			for _, l := range r.Limits {
				fmt.Println("  lim", l.Kind, l.Flow, l.First, l.Count)
			}
			for _, h := range r.Halves {
				fmt.Printf("  %+v\n", *h)
			}
			for _, h := range r.Times {
				fmt.Printf("  %+v\n", h)
			}
		}
	}
}
