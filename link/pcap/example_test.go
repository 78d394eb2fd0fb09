package pcap_test

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/link/pcap"
)

// Capture what a device sends and receives.
func ExampleWrap() {
	w, err := pcap.Create(os.DevNull, 0) // "run.pcapng" keeps directions
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	inner, _ := mem.Pair(mem.Config{})
	port, err := pcap.Wrap(inner, w, pcap.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	fmt.Println(port.Info().Driver)
	// Output: mem
}

// Count the RoCE packets of a capture with a right ICRC.
func ExampleReader() {
	f, err := os.Open("../../testdata/pcaps/uc_pingpong.pcap")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	r, err := pcap.NewReader(f)
	if err != nil {
		log.Fatal(err)
	}
	n := 0
	var p frame.Packet
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		if data, layout, ok := rec.Frame(); ok && p.Parse(data, layout) == nil && p.CheckICRC() {
			n++
		}
	}
	fmt.Println(n > 0)
	// Output: true
}
