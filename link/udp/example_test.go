package udp_test

import (
	"fmt"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/udp"
)

// A Port on one address. All its packets have source port 4791.
func ExampleOpen() {
	own := linktest.Loopback(71) // of 127.0.0.0/8
	port, err := udp.Open(udp.Config{Addr: own})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer port.Close()
	info := port.Info()
	path, err := frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(own), Dst: bth.GIDFrom(linktest.Loopback(72)), SrcPort: info.SrcPort})
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _, ok := port.Begin(path, 16)
	fmt.Println(info.Driver, info.Layout, info.SrcPort, len(body), ok)
	// Output: udp udp 4791 16 true
}
