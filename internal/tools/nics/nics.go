// Package nics lists the processes that have devices on addresses of this host.
package nics

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/share"
)

// Address is an address or interface, with the processes that have devices on it.
type Address struct {
	Driver    string    `json:"driver"`              // "udp"
	Address   string    `json:"address,omitempty"`   // either an address,
	Interface string    `json:"interface,omitempty"` // or an interface
	Processes []Process `json:"processes"`
	Exclusive bool      `json:"exclusive,omitempty"` // one process uses it alone; then there are no places
	Places    int       `json:"places"`              // how many places the processes have
	Of        int       `json:"of"`                  // how many places there are
	Error     string    `json:"error,omitempty"`     // why only the keeper is known; the keeper is the process that allocates places
}

// Process is a process on an address.
type Process struct {
	PID     int     `json:"pid"`
	Program string  `json:"program,omitempty"` // empty: it is not visible here
	UID     int     `json:"uid"`
	User    string  `json:"user,omitempty"`
	Slots   []int   `json:"slots"`
	Age     float64 `json:"age_seconds"`
	Keeper  bool    `json:"keeper"`
	Version string  `json:"version,omitempty"`
	Does    *Does   `json:"does,omitempty"` // nil: not known
}

// Does describes the activity of a process.
type Does struct {
	QueuePairs  int      `json:"queue_pairs"`
	Connections int      `json:"connections"`
	Services    []string `json:"services"`
	Omitted     int      `json:"services_omitted,omitempty"`
	TxPackets   uint64   `json:"tx_packets"`
	RxPackets   uint64   `json:"rx_packets"`
	TxRate      *float64 `json:"tx_packets_per_second,omitempty"`
	RxRate      *float64 `json:"rx_packets_per_second,omitempty"`
}

// List lists the addresses of the network namespace that have devices. If interval is not 0, it
// asks the processes twice with this time between, and computes rates from both.
func List(ctx context.Context, interval time.Duration) ([]Address, error) {
	list, err := share.List(false)
	if err != nil || interval == 0 {
		return describe(list), err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(interval):
	}
	later, err := share.List(false)
	if err != nil {
		return nil, err
	}
	all := describe(later)
	addRates(all, describe(list), time.Since(began))
	return all, nil
}

// addRates adds the rates since an earlier list. A process that was not in that list gets none.
func addRates(now, before []Address, took time.Duration) {
	type place struct {
		driver, address string
		slot, pid       int
	}
	earlier := map[place]*Does{}
	each := func(list []Address, f func(place, *Does)) {
		for _, a := range list {
			for _, p := range a.Processes {
				if p.Does != nil {
					f(place{a.Driver, cmp.Or(a.Address, a.Interface), p.slot(), p.PID}, p.Does)
				}
			}
		}
	}
	each(before, func(at place, d *Does) { earlier[at] = d })
	each(now, func(at place, d *Does) {
		old := earlier[at]
		if old == nil || d.TxPackets < old.TxPackets || d.RxPackets < old.RxPackets {
			return
		}
		tx, rx := float64(d.TxPackets-old.TxPackets)/took.Seconds(), float64(d.RxPackets-old.RxPackets)/took.Seconds()
		d.TxRate, d.RxRate = &tx, &rx
	})
}

// slot returns the first place of a process, -1 if it has none.
func (p *Process) slot() int {
	if len(p.Slots) == 0 {
		return -1
	}
	return p.Slots[0]
}

// describe adds the names of interfaces, programs and users on this host.
func describe(list []share.Address) []Address {
	all := []Address{}
	for _, s := range list {
		a := Address{Processes: []Process{}, Of: share.Slots, Exclusive: s.Exclusive, Error: s.Error}
		if s.Exclusive {
			a.Of = 0
		}
		a.Driver, a.Address, a.Interface = parseKey(s.Key, interfaceName)
		for _, m := range s.Members {
			p := Process{PID: m.PID, Program: Program(m.PID), UID: m.UID, User: userName(m.UID), Slots: []int{}, Age: m.Age.Seconds(), Keeper: m.Keeper, Version: m.Version}
			for _, slot := range m.Slots {
				p.Slots = append(p.Slots, int(slot))
			}
			if r := m.Report; r != nil {
				p.Does = &Does{QueuePairs: r.QueuePairs, Connections: r.Connections, Services: []string{}, Omitted: r.Omitted, TxPackets: r.TxPackets, RxPackets: r.RxPackets}
				for _, id := range r.Services {
					p.Does.Services = append(p.Does.Services, service(cm.ServiceID(id)))
				}
			}
			a.Places += len(p.Slots)
			a.Processes = append(a.Processes, p)
		}
		all = append(all, a)
	}
	return all
}

// KeyName returns the name of a key: "udp 10.0.0.1", or "raw eth0" for a key with an interface index.
func KeyName(key string) string {
	driver, address, iface := parseKey(key, interfaceName)
	return driver + " " + cmp.Or(address, iface)
}

// parseKey parses a key: "udp 10.0.0.1", or "raw #3" for the interface with index 3.
func parseKey(key string, name func(index int) string) (driver, address, iface string) {
	driver, at, _ := strings.Cut(key, " ")
	number, isIndex := strings.CutPrefix(at, "#")
	index, err := strconv.Atoi(number)
	if !isIndex || err != nil {
		return driver, at, ""
	}
	return driver, "", cmp.Or(name(index), at)
}

func interfaceName(index int) string {
	ifi, err := net.InterfaceByIndex(index)
	if err != nil {
		return ""
	}
	return ifi.Name
}

// Program returns the name of a process's program, empty if it is not visible.
func Program(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

func userName(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return u.Username
}

// service names a service: "TCP 7471" of rdma_cm, or the service ID.
func service(id cm.ServiceID) string {
	if !id.IsIP() {
		return id.String()
	}
	return fmt.Sprintf("%s %d", strings.ToUpper(id.PortSpace().String()), id.Port())
}

// WriteText prints addresses for people.
func WriteText(w io.Writer, list []Address) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no process has a device")
		return err
	}
	for i, a := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s %s", Printable(a.Driver), Printable(cmp.Or(a.Address, a.Interface)))
		switch {
		case a.Error != "":
			fmt.Fprintf(w, ": %s\n", Printable(a.Error))
		case a.Exclusive:
			fmt.Fprintln(w, ": one process has it for itself")
		default:
			fmt.Fprintf(w, ": %d of %d places taken\n", a.Places, a.Of)
		}
		if err := writeProcesses(w, a.Processes); err != nil {
			return err
		}
	}
	return nil
}

// writeProcesses prints a line for each process.
func writeProcesses(w io.Writer, list []Process) error {
	rates := slices.ContainsFunc(list, func(p Process) bool { return p.Does != nil && p.Does.TxRate != nil })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(t, "  "+strings.Join(cells, "\t")) }
	head := []string{"PID", "PROGRAM", "USER", "PLACES", "AGE", "VERSION", "QPS", "CONNS", "SENT", "RECEIVED"}
	if rates {
		head = append(head, "SENT/S", "RECEIVED/S")
	}
	row(append(head, "SERVICES")...)
	for _, p := range list {
		cells := []string{strconv.Itoa(p.PID), cmp.Or(Printable(p.Program), "-"), cmp.Or(Printable(p.User), strconv.Itoa(p.UID)), cmp.Or(numbers(p.Slots), "-"), "-", cmp.Or(Printable(p.Version), "-")}
		if p.Age > 0 {
			cells[4] = time.Duration(p.Age * float64(time.Second)).Round(time.Second).String()
		}
		if p.Keeper {
			cells[0] += "*"
		}
		cells = append(cells, p.Does.cells(rates)...)
		row(cells...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(p Process) bool { return p.Keeper }) {
		_, err := fmt.Fprintln(w, "  * keeper: hands out the places")
		return err
	}
	return nil
}

// cells returns the columns of a process's activity.
func (d *Does) cells(rates bool) []string {
	if d == nil {
		n := 5
		if rates {
			n += 2
		}
		return slices.Repeat([]string{"-"}, n)
	}
	cells := []string{strconv.Itoa(d.QueuePairs), strconv.Itoa(d.Connections), strconv.FormatUint(d.TxPackets, 10), strconv.FormatUint(d.RxPackets, 10)}
	if rates {
		for _, r := range []*float64{d.TxRate, d.RxRate} {
			if r == nil {
				cells = append(cells, "-")
			} else {
				cells = append(cells, strconv.FormatFloat(*r, 'f', 0, 64))
			}
		}
	}
	services := strings.Join(d.Services, ", ")
	if d.Omitted > 0 {
		services += fmt.Sprintf(" and %d more", d.Omitted)
	}
	return append(cells, cmp.Or(services, "-"))
}

// numbers prints numbers with commas between.
func numbers(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}

// Printable replaces control characters, which could move the cursor: other users choose names and answers.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
