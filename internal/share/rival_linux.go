package share

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/hostnet"
)

// InterfaceKey returns the key of an interface that processes share by a driver, AddrKey that
// of an address.
func InterfaceKey(driver string, index int) string { return fmt.Sprintf("%s #%d", driver, index) }

func AddrKey(driver, addr string) string { return driver + " " + addr }

// InZone returns an address in the form for keys: a link-local address has the interface's index
// as zone.
func InZone(a netip.Addr, index int) netip.Addr {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return a.WithZone(strconv.Itoa(index))
	}
	return a
}

// Holder describes the keeper of a shared address, for an error. It returns an empty string if
// no process shares the address. Between two keepers it waits for the next one.
func Holder(key string) string {
	for end := time.Now().Add(leaveTime); ; time.Sleep(time.Millisecond) {
		if who := ask(keeperName(key).Name); who != "" {
			return fmt.Sprintf("shared by %s and others", who)
		}
		if !members(key) || time.Now().After(end) {
			return ""
		}
	}
}

// ask describes the process that listens at a name.
func ask(name string) string {
	l, err := dial(name)
	if err != nil {
		return ""
	}
	defer l.Close()
	return holder(l.peer)
}

// owner describes the process that has an address for itself. It returns an empty string if no
// Owner answers.
func owner(key string) string { return ask(ownerName(key).Name) }

// NameRival completes the error of a driver that finds an interface in use: the error then names
// the process that uses the interface or one of its addresses, if a process answers, and says
// what to do. The calling thread is in the network namespace of the interface. The caller waits
// until Join has returned, because during Join this process itself uses the address.
func NameRival(e *errs.Error, driver string, index int) {
	if !errors.Is(e, syscall.EADDRINUSE) {
		return
	}
	var addrs []string
	if ifi, err := net.InterfaceByIndex(index); err == nil {
		list, _ := hostnet.AddrsOf(ifi)
		for _, a := range list {
			addrs = append(addrs, InZone(a, index).String())
		}
	}
	e.Detail = cmp.Or(rival(driver, index, addrs), e.Detail)
}

// rival returns the text for NameRival, or an empty string.
func rival(driver string, index int, addrs []string) string {
	const alone = `driver "xdp" has one owner of the queues of an interface`
	if who := owner(InterfaceKey("xdp", index)); who != "" {
		return fmt.Sprintf("%s has the interface by driver \"xdp\", and %s: end that process, or use driver \"raw\" or \"udp\" in both, which processes share", who, alone)
	}
	for _, other := range []string{"udp", "raw"} {
		who := Holder(InterfaceKey(other, index))
		switch {
		case who == "":
		case driver == "xdp":
			return fmt.Sprintf("%s, and the interface is %s by driver %q: end those processes, or use driver %q here, too", alone, who, other, other)
		case driver == other:
			return fmt.Sprintf("the interface is %s, and this device wants it, or an address of it, for itself: open the interface to share, too, or end those processes", who)
		default:
			return fmt.Sprintf("the interface is %s by driver %q: processes share it if all use one driver, so use driver %q here, too", who, other, other)
		}
	}
	for _, a := range addrs {
		who := Holder(AddrKey("udp", a))
		switch {
		case who == "":
		case driver == "udp":
			return fmt.Sprintf("address %s is %s, and this device wants the interface, or the address for itself: open the address to share, too, or end those processes", a, who)
		default:
			return fmt.Sprintf("address %s of the interface is %s by driver \"udp\": open that address, too, or end those processes", a, who)
		}
	}
	return ""
}
