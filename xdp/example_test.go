package xdp_test

import (
	"errors"
	"fmt"
	"log"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/xdp"
)

// A device on AF_XDP. OpenInterface with InterfaceConfig{Driver: "xdp"} does the same, and also
// updates the addresses when those of the interface change.
func ExampleOpenQueues() {
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	ports, err := xdp.OpenQueues(xdp.Config{Interface: "eth0", Addrs: addrs}, 4)
	if errors.Is(err, xdp.ErrProgram) {
		log.Fatal(err) // for instance: the interface has another XDP program; Config.Force removes it
	}
	if err != nil {
		log.Fatal(err)
	}
	nic, err := roce.Open(roce.Config{Ports: ports, Addrs: addrs})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	fmt.Println(ports[0].Info().Mode)
}
