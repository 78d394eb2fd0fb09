package verbs

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"slices"

	"github.com/goroce/roce"
)

// description is a device that can be opened.
type description struct {
	name   string // roce0
	netdev string // of which interface
	guid   uint64
	open   func() (*roce.Device, error)
}

// describe lists the devices that there are: an interface that is up and has an address is one,
// and the loopback comes last.
func describe() ([]description, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(interfaces, func(a, b net.Interface) int {
		return int(a.Flags&net.FlagLoopback) - int(b.Flags&net.FlagLoopback)
	})
	var list []description
	for _, i := range interfaces {
		if addrs, err := i.Addrs(); err != nil || len(addrs) == 0 || i.Flags&net.FlagUp == 0 {
			continue
		}
		d := description{name: fmt.Sprintf("roce%d", len(list)), netdev: i.Name, guid: guid(&i)}
		d.open = func() (*roce.Device, error) {
			return roce.OpenInterface(d.netdev, roce.InterfaceConfig{Driver: "udp", Options: roce.Options{GUID: d.guid}})
		}
		list = append(list, d)
	}
	return list, nil
}

// guid returns the GUID of the device on an interface: that of its Ethernet address as Linux makes it
// (EUI-64), or one of the host and the name of the interface.
func guid(i *net.Interface) uint64 {
	if m := i.HardwareAddr; len(m) == 6 && slices.Max(m) != 0 {
		return binary.BigEndian.Uint64([]byte{m[0] ^ 2, m[1], m[2], 0xFF, 0xFE, m[3], m[4], m[5]})
	}
	host, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		host, _ = os.ReadFile("/proc/sys/kernel/random/boot_id")
	}
	h := fnv.New64a()
	h.Write(host)
	h.Write([]byte(i.Name))
	const universal = 2 << 56
	return h.Sum64()&^universal | 1
}
