// Package machine opens the NICs that flags describe: the flags of rocectl's commands, and the flags in the
// environment variable ROCE_FLAGS for programs that use libibverbs.
//
// [Flags] are the flags of a command that opens one NIC for the route to a peer. [EnvFlags] are the flags of all NICs
// of a [Machine], which names them as a host names its adapters.
package machine

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/spf13/pflag"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/tools/usage"
)

// EnvVar is the environment variable that holds the flags of programs for libibverbs. They are
// words as in a shell: --dev eth0 --loss 'rx=1%'.
const EnvVar = "ROCE_FLAGS"

// EnvFlags are the values of the flags that describe all NICs of a program.
type EnvFlags struct {
	Flags          // Dev is not used
	Devs  []string // interfaces and addresses; none: all usable interfaces
	Log   string   // file for traces and counters; empty: standard error
}

// Register adds the flags to those of a command, after its own ones.
func (f *EnvFlags) Register(s *pflag.FlagSet) {
	s.SortFlags = false
	s.StringSliceVar(&f.Devs, "dev", nil, "network `interface`s, or addresses with --link udp, each a device: roce0, roce1, ... (default: all interfaces that are up and have an address)")
	s.StringVar(&f.Link, "link", linkUDP, "udp: UDP sockets, raw: packet socket, xdp: AF_XDP")
	f.register(s, "not rsockets")
	s.StringVar(&f.Log, "log", "", "append traces and counters to `FILE` instead of stderr; %p in the name is the number of the process, there and in --capture")
}

// Validate returns an error that names an invalid flag.
func (f *EnvFlags) Validate() error {
	if err := usage.OneOf("--link", f.Link, roce.InterfaceDrivers()...); err != nil {
		return err
	}
	if f.Capture == "-" {
		return usage.Errorf("--capture -: standard output is the program's: name a file")
	}
	for i, d := range f.Devs {
		switch _, err := netip.ParseAddr(d); {
		case d == "":
			return usage.Errorf("--dev: a name is empty: want interfaces, or addresses")
		case err == nil && f.Link != linkUDP:
			return usage.Errorf("--dev %s: --link %s needs an interface, an address needs --link udp", d, f.Link)
		case slices.Contains(f.Devs[:i], d):
			return usage.Errorf("--dev %s: it is there twice", d)
		}
	}
	return f.Flags.Validate()
}

// Text returns the value of [EnvVar] with the same meaning as the given flags of s. s has the flags of f, and may have
// others, which Text leaves out.
func (f *EnvFlags) Text(s *pflag.FlagSet) string {
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(EnvFlags).Register(known)
	var words []string
	s.Visit(func(given *pflag.Flag) {
		var values []string
		switch {
		case known.Lookup(given.Name) == nil:
		case given.Name == "dev":
			values = f.Devs
		case given.Name == "fault":
			for _, r := range f.Faults.Rules {
				values = append(values, r.String())
			}
		default:
			values = []string{given.Value.String()}
		}
		for _, v := range values {
			words = append(words, "--"+given.Name+"="+v)
		}
	})
	return joinWords(words)
}

// Privileged returns whether the devices need capabilities.
func (f *EnvFlags) Privileged() bool { return f.Link != linkUDP }

// ParseEnv reads [EnvVar]. Errors name the variable.
func ParseEnv() (*EnvFlags, error) {
	f, err := parseEnv(os.Getenv(EnvVar))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EnvVar, err)
	}
	return f, nil
}

// parseEnv reads the value of [EnvVar].
func parseEnv(text string) (*EnvFlags, error) {
	f := new(EnvFlags)
	s := pflag.NewFlagSet(EnvVar, pflag.ContinueOnError)
	s.Usage = func() {}
	f.Register(s)
	words, err := splitWords(text)
	if err != nil {
		return nil, err
	}
	switch err := s.Parse(words); {
	case err == pflag.ErrHelp:
		return nil, fmt.Errorf("--help: rocectl run --help lists the flags")
	case err != nil:
		return nil, FlagError(err)
	case s.NArg() > 0:
		return nil, usage.Errorf("%q is not a flag: want --dev eth0 and the like", s.Arg(0))
	}
	return f, f.Validate()
}

// Machine is the NICs of a program.
type Machine struct {
	flags EnvFlags

	mu    sync.Mutex // guards the fields below
	known []string   // interfaces and addresses; the index is the number in the name of the device
	log   io.Writer  // nil: not open yet
}

// Info describes a device of a [Machine] that need not be open.
type Info struct {
	Name      string       // roce0
	Interface string       // "" if an address is on none
	MAC       frame.MAC    // zero if the interface has none
	GUID      uint64       // node GUID
	Addrs     []netip.Addr // in the order of the GID table
}

// FromEnv returns the machine that [EnvVar] describes. Errors name the variable.
func FromEnv() (*Machine, error) {
	f, err := ParseEnv()
	if err != nil {
		return nil, err
	}
	return New(*f), nil
}

// New returns the machine that valid flags describe.
func New(f EnvFlags) *Machine {
	f.own = true
	return &Machine{flags: f, known: slices.Clone(f.Devs)}
}

// Reports reports whether the flags request the counters of devices: [Device.Report].
func (m *Machine) Reports() bool { return m.flags.Counters }

// List returns the devices. It opens none. A Machine never changes the name of a device.
func (m *Machine) List() ([]Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.flags.Devs) == 0 {
		names, err := usable(m.flags.Link)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			if !slices.Contains(m.known, n) {
				m.known = append(m.known, n)
			}
		}
	}
	var all []Info
	for i, at := range m.known {
		info, err := describe(at)
		switch {
		case err == nil:
			info.Name = deviceName(i)
			all = append(all, info)
		case len(m.flags.Devs) > 0: // requested by name
			return nil, err
		}
	}
	return all, nil
}

// Open opens a device of [Machine.List] by its name. change, if it is not nil, may change the configuration. A program
// may open a device several times if the link can share it.
func (m *Machine) Open(name string, change func(*roce.InterfaceConfig)) (*Device, error) {
	at, log, err := m.find(name)
	if err != nil {
		return nil, err
	}
	info, err := describe(at)
	if err != nil {
		return nil, err
	}
	c := m.flags.config()
	c.GUID = info.GUID
	if change != nil {
		change(&c)
	}
	if a, err := netip.ParseAddr(at); err == nil {
		return m.flags.openAddr(a, c, log)
	}
	return m.flags.openInterface(at, c, log)
}

// find returns the interface or address of a device, and the log.
func (m *Machine) find(name string) (at string, log io.Writer, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, k := range m.known {
		if deviceName(i) == name {
			at = k
		}
	}
	if at == "" {
		return "", nil, fmt.Errorf("%w: %s", roce.ErrNoDevice, name)
	}
	if m.log == nil {
		m.log = os.Stderr
		if m.flags.Log != "" {
			file := expandPID(m.flags.Log, os.Getpid())
			if m.log, err = os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666); err != nil {
				m.log = nil
				return "", nil, fmt.Errorf("%s: --log: %w", EnvVar, err)
			}
		}
	}
	return at, m.log, nil
}

func deviceName(n int) string { return fmt.Sprintf("roce%d", n) }

// describe returns the Info of a device on an interface or address, without its name.
func describe(at string) (Info, error) {
	if a, err := netip.ParseAddr(at); err == nil {
		name, _ := interfaceOf(a)
		return Info{Interface: name, GUID: hostGUID(at), Addrs: []netip.Addr{a.Unmap().WithZone("")}}, nil
	}
	if err := Exists(at); err != nil {
		return Info{}, err
	}
	ifi, err := net.InterfaceByName(at)
	if err != nil {
		return Info{}, fmt.Errorf("interface %s: %w", at, err)
	}
	info := Info{Interface: at}
	if len(ifi.HardwareAddr) == len(info.MAC) {
		info.MAC = frame.MAC(ifi.HardwareAddr)
	}
	info.GUID = hostGUID(at)
	if gid := frame.DefaultGID(info.MAC); !info.MAC.IsZero() {
		info.GUID = binary.BigEndian.Uint64(gid[8:]) // like rxe
	}
	info.Addrs, err = addrsOf(at)
	return info, err
}
