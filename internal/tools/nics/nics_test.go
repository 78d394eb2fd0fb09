package nics

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/share"
)

func TestParseKey(t *testing.T) {
	name := func(index int) string {
		if index == 3 {
			return "eth0"
		}
		return ""
	}
	for key, want := range map[string][3]string{
		"udp 10.0.0.1":    {"udp", "10.0.0.1", ""},
		"udp fe80::1%lo":  {"udp", "fe80::1%lo", ""},
		"raw #3":          {"raw", "", "eth0"},
		"raw #4":          {"raw", "", "#4"}, // the interface no longer exists
		"raw #x":          {"raw", "#x", ""},
		"somebody's name": {"somebody's", "name", ""},
		"":                {"", "", ""},
	} {
		driver, address, iface := parseKey(key, name)
		if got := [3]string{driver, address, iface}; got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

// sample returns a list of addresses as keepers report them.
func sample(tx, rx uint64) []share.Address {
	return []share.Address{
		{Key: "udp 10.0.0.1", Members: []share.Member{
			{PID: os.Getpid(), UID: os.Getuid(), Slots: []share.Slot{7, 9}, Age: 90 * time.Second, Keeper: true, Version: "v1.2.3",
				Report: &share.Report{QueuePairs: 11, Connections: 12, Services: []uint64{uint64(cm.Service(cm.PortSpaceTCP, 7471)), 0xABC}, Omitted: 5, TxPackets: tx, RxPackets: rx}},
			{PID: 1 << 30, UID: 1 << 29, Slots: []share.Slot{3}, Age: time.Second, Version: "v1.2.3"},
		}},
		{Key: "udp 10.0.0.2", Error: "the keeper does not answer\x1b[2J", Members: []share.Member{{PID: 1 << 30, Keeper: true}}},
	}
}

func TestWriteText(t *testing.T) {
	list := describe(sample(4100, 5200))
	addRates(list, describe(sample(4000, 5000)), 2*time.Second)
	var b strings.Builder
	if err := WriteText(&b, list); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"udp 10.0.0.1: 3 of 64 places taken", "7,9", "1m30s", "v1.2.3", "4100", "5200", " 50 ", " 100 ", "TCP 7471, 0x0000000000000abc and 5 more",
		"1073741824 ", "536870912", "udp 10.0.0.2: the keeper does not answer?[2J", "1073741824*", "* keeper"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if first := list[0].Processes[0]; first.Program == "" || *first.Does.TxRate != 50 || *first.Does.RxRate != 100 {
		t.Errorf("%+v", first)
	}
}

// A process that is new, or that has taken the place of another one, has no rate.
func TestNoRate(t *testing.T) {
	now, before := describe(sample(4100, 5200)), describe(sample(4200, 5000))
	addRates(now, before, time.Second)
	if d := now[0].Processes[0].Does; d.TxRate != nil {
		t.Errorf("fewer packets than before: %+v", d)
	}
	before[0].Processes[0].Does.TxPackets = 0
	before[0].Processes[0].Slots[0] = 8
	addRates(now, before, time.Second)
	if d := now[0].Processes[0].Does; d.TxRate != nil {
		t.Errorf("another place: %+v", d)
	}
}

func TestNobody(t *testing.T) {
	var b strings.Builder
	if err := WriteText(&b, nil); err != nil || !strings.HasPrefix(b.String(), "no process") {
		t.Errorf("%q, %v", b.String(), err)
	}
}
