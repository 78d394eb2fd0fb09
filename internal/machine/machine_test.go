package machine

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/goroce/roce"
	"github.com/goroce/roce/xdp"
)

func TestParseEnv(t *testing.T) {
	f, err := parseEnv(`--dev eth0,eth1 --dev=10.0.0.1 --spin 5us --loss 'rx=1%' --capture "a %p.pcap" --dcqcn --queues 2`)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.Devs, []string{"eth0", "eth1", "10.0.0.1"}) || f.Link != "udp" || f.Spin.time != 5*time.Microsecond ||
		!f.Faults.Enabled() || f.Capture != "a %p.pcap" || f.DCQCN != portSpeed || f.Queues != 2 {
		t.Errorf("%+v", f)
	}
}

// The flags of driver xdp reach its configuration.
func TestXDPFlags(t *testing.T) {
	for _, tt := range []struct {
		flags Flags
		want  xdp.Config
	}{
		{Flags{Link: "xdp"}, xdp.Config{}},
		{Flags{Link: "xdp", ZeroCopy: "off"}, xdp.Config{ZeroCopy: xdp.ZeroCopyOff}},
		{Flags{Link: "xdp", ZeroCopy: "on", InPlace: 4}, xdp.Config{ZeroCopy: xdp.ZeroCopyOn, Memory: 4 << 20, InPlace: 1}},
	} {
		if c := tt.flags.config(); !reflect.DeepEqual(c.XDP, tt.want) {
			t.Errorf("%+v: %+v; want %+v", tt.flags, c.XDP, tt.want)
		}
	}
}

// An error names the variable, the flag and the permitted values.
func TestFromEnvErrors(t *testing.T) {
	for text, want := range map[string]string{
		"--bogus":                     "ROCE_FLAGS: unknown flag: --bogus",
		"--spin abc":                  "ROCE_FLAGS: --spin abc: want a time like 50us, or none",
		"--queues x":                  "ROCE_FLAGS: --queues x: want a whole number",
		"--queues -1":                 "ROCE_FLAGS: --queues -1: want 0 or more",
		"--link mem":                  "ROCE_FLAGS: --link mem: want raw, udp or xdp",
		"--link raw --dev 10.0.0.1":   "ROCE_FLAGS: --dev 10.0.0.1: --link raw needs an interface, an address needs --link udp",
		"--dev eth0,eth1 --dev eth0":  "ROCE_FLAGS: --dev eth0: it is there twice",
		"--dev eth0,":                 "ROCE_FLAGS: --dev: a name is empty: want interfaces, or addresses",
		"--capture -":                 "ROCE_FLAGS: --capture -: standard output is the program's: name a file",
		"--capture 'a":                "ROCE_FLAGS: a quote ' is not closed",
		"--delay-time -1s":            "ROCE_FLAGS: --delay-time -1s: want 0 or more",
		"eth0":                        `ROCE_FLAGS: "eth0" is not a flag: want --dev eth0 and the like`,
		"--help":                      "ROCE_FLAGS: --help: rocectl run --help lists the flags",
		"--zero-copy on":              "ROCE_FLAGS: --zero-copy on needs --link xdp",
		"--in-place 4":                "ROCE_FLAGS: --in-place needs --link xdp",
		"--loss":                      "ROCE_FLAGS: flag needs an argument: --loss",
		"--dcqcn=fast --dev 10.0.0.1": "ROCE_FLAGS: --dcqcn=fast: want the speed of the line in Gb/s, 0.001 to 10000",
	} {
		t.Setenv(EnvVar, text)
		if _, err := FromEnv(); err == nil || err.Error() != want {
			t.Errorf("%q:\n%v, want\n%s", text, err, want)
		}
	}
	t.Setenv(EnvVar, "--dev bogus")
	m, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.List(); !errors.Is(err, roce.ErrNoDevice) {
		t.Errorf("an interface that is not there: %v", err)
	}
}

// Text contains every given flag, and nothing else.
func TestText(t *testing.T) {
	args := []string{"--dev=eth0,10.0.0.1", "--link=udp", "--queues=2", "--capture=a b.pcap", "--trace", "--poll", "--spin=none", "--counters",
		"--dcqcn=25", "--log=x-%p", "--seed=7", "--loss=rx=1%", "--delay=tx=50%", "--delay-time=3ms", "--fault=drop,qpn=1", "--fault=dup,psn=5", "--sysfs=never"}
	var given EnvFlags
	s := pflag.NewFlagSet("", pflag.ContinueOnError)
	given.Register(s)
	s.String("sysfs", "", "")
	if err := s.Parse(args); err != nil {
		t.Fatal(err)
	}
	text := given.Text(s)
	if strings.Contains(text, "sysfs") {
		t.Errorf("%s has a flag that is not one of the NIC's", text)
	}
	got, err := parseEnv(text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*got, given) {
		t.Errorf("%s:\n%+v, want\n%+v", text, *got, given)
	}
}

// Without --dev the list has all interfaces with an address (the loopback only if there is no other), under names that
// do not change.
func TestListAll(t *testing.T) {
	t.Setenv(EnvVar, "")
	m, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	first, err := m.List()
	if err != nil || len(first) == 0 {
		t.Skipf("no network interface that is up: %v", err)
	}
	for i, d := range first {
		ifi, err := net.InterfaceByName(d.Interface)
		if err != nil || ifi.Flags&net.FlagUp == 0 || len(d.Addrs) == 0 || d.GUID == 0 || d.Name != deviceName(i) {
			t.Errorf("%+v: %v", d, err)
		}
		if ifi.Flags&net.FlagLoopback != 0 && len(first) > 1 {
			t.Errorf("%s is beside others", d.Interface)
		}
	}
	if again, err := m.List(); err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("%+v, %v, first it was %+v", again, err, first)
	}
}

// A device has the GUID and the addresses in the list. An interface and one of its addresses are two devices.
func TestOpen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the name of the loopback interface is that of Linux")
	}
	log := filepath.Join(t.TempDir(), "log-%p")
	t.Setenv(EnvVar, "--dev 127.0.0.61,127.0.0.62 --counters --trace --log "+log)
	m, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	if !m.Reports() {
		t.Error("--counters is forgotten")
	}
	list, err := m.List()
	if err != nil || len(list) != 2 || list[0].Interface != "lo" || list[0].GUID == list[1].GUID {
		t.Fatalf("%+v, %v", list, err)
	}
	var open []*Device
	for _, info := range list {
		changed := false
		d, err := m.Open(info.Name, func(c *roce.InterfaceConfig) { changed = true })
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, d)
		if got := d.Query().GUID; got != info.GUID || !changed {
			t.Errorf("GUID %x, the list says %x", got, info.GUID)
		}
		if got := d.GIDs()[0].Addr(); got != info.Addrs[0] {
			t.Errorf("address %v, the list says %v", got, info.Addrs)
		}
	}
	if _, err := m.Open("roce2", nil); !errors.Is(err, roce.ErrNoDevice) {
		t.Errorf("roce2: %v", err)
	}
	if _, err := open[0].Dial(t.Context(), "127.0.0.62:1", roce.DialConfig{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	open[0].Report()
	for _, d := range open {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(expandPID(log, os.Getpid()))
	if n := strings.Count(string(text), "link_tx_packets"); err != nil || n != len(open) {
		t.Errorf("the counters are printed %d times: %v\n%s", n, err, text)
	}
}

// Captures of several programs with the same flags do not overwrite each other.
func TestOwnFile(t *testing.T) {
	dir := t.TempDir()
	create := func(name string, pid int) string {
		f, err := createOwn(filepath.Join(dir, name), pid)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		return filepath.Base(f.Name())
	}
	for _, tt := range []struct {
		name string
		pid  int
		want string
	}{
		{"c.pcapng", 7, "c.pcapng"}, {"c.pcapng", 8, "c-8.pcapng"}, {"c.pcapng", 8, "c-8-2.pcapng"}, {"c.pcapng", 9, "c-9.pcapng"},
		{"d-%p.pcap", 7, "d-7.pcap"}, {"d-%p.pcap", 8, "d-8.pcap"}, {"e", 7, "e"}, {"e", 8, "e-8"},
	} {
		if got := create(tt.name, tt.pid); got != tt.want {
			t.Errorf("%s of process %d is %s, want %s", tt.name, tt.pid, got, tt.want)
		}
	}
	if f, err := createOwn(os.DevNull, 7); err != nil || f.Name() != os.DevNull {
		t.Errorf("%s: %v", os.DevNull, err)
	}
}
