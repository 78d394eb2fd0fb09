package netlab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// cardsVar names two interfaces of the machine that a cable joins, separated by a comma. Pair then uses these instead
// of a veth pair, to test with a real driver. They keep their number of queues.
const cardsVar = "ROCE_NETLAB_CARDS"

// Cards returns the two interfaces that Pair uses; ok is false if it makes veth pairs. Tests that use
// them cannot run side by side.
func Cards() (a, b string, ok bool) { return strings.Cut(os.Getenv(cardsVar), ",") }

// NeedCards skips a test of a card's driver if there are no cards.
func NeedCards(t testing.TB) {
	t.Helper()
	if _, _, ok := Cards(); !ok {
		Lacking(t, "card to lend", errors.New(cardsVar+" names none"))
	}
}

// connectCards moves the two cards into the namespaces of the sides, and back when the test ends.
func connectCards(t testing.TB, a, b *Side, c Config) error {
	a.Interface, b.Interface, _ = Cards()
	for _, s := range []*Side{a, b} {
		if err := s.takeCard(c); err != nil {
			return fmt.Errorf("card %s: %w", s.Interface, err)
		}
		t.Cleanup(func() {
			if err := s.nl.LinkSetNsPid(s.link, os.Getpid()); err != nil {
				t.Errorf("netlab: giving back %s: %v", s.Interface, err)
			}
		})
	}
	return bringAllUp(a, b)
}

// takeCard prepares a card and moves it into the side's namespace.
func (s *Side) takeCard(c Config) error {
	l, err := netlink.LinkByName(s.Interface)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetDown(l); err != nil {
		return err
	}
	if err := netlink.LinkSetHardwareAddr(l, net.HardwareAddr(s.MAC[:])); err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(l, c.MTU); err != nil {
		return err
	}
	if err := netlink.LinkSetNsFd(l, int(s.ns)); err != nil {
		return err
	}
	s.link, err = s.nl.LinkByName(s.Interface)
	return err
}
