package launch

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/roce/internal/machine"
)

func TestFindLib(t *testing.T) {
	root := t.TempDir()
	place := func(dir string) string {
		at := filepath.Join(root, dir)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, library), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return at
	}
	bin := filepath.Join(root, "usr/bin")
	if got, err := findLib("", "", bin); err == nil || !strings.Contains(err.Error(), "make cverbs") || !strings.Contains(err.Error(), filepath.Join(root, "usr/lib/roce")) {
		t.Errorf("%q, %v", got, err)
	}
	installed, mine, built := place("usr/lib/roce"), place("mine"), ""
	check := func(dir, env, want string) {
		t.Helper()
		if got, err := findLib(dir, env, bin); err != nil || got != want {
			t.Errorf("--lib %q, %s=%q: %q, %v, want %q", dir, LibVar, env, got, err, want)
		}
	}
	check("", "", installed)
	built = place("usr/bin/cverbs")
	check("", "", built)
	check("", mine, mine)
	check(installed, mine, installed)
	for where, f := range map[string]func() (string, error){
		"--lib: ": func() (string, error) { return findLib(root, mine, bin) }, LibVar + ": ": func() (string, error) { return findLib("", root, bin) },
	} {
		if got, err := f(); err == nil || !strings.HasPrefix(err.Error(), where+"there is no "+library) {
			t.Errorf("%q, %v, want %s…", got, err, where)
		}
	}
	if got, err := findLib(place("a:b"), "", bin); err == nil || !strings.Contains(err.Error(), "no colon") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestEnviron(t *testing.T) {
	old := []string{"A=1", "LD_LIBRARY_PATH=/x:/y", machine.EnvVar + "=--dev lo"}
	for _, tt := range []struct {
		flags string
		old   []string
		want  []string
	}{
		{"--dev=eth0", old, []string{"A=1", "LD_LIBRARY_PATH=/lib:/x:/y", machine.EnvVar + "=--dev=eth0"}},
		{"", old, []string{"A=1", machine.EnvVar + "=--dev lo", "LD_LIBRARY_PATH=/lib:/x:/y"}},
		{"", []string{"LD_LIBRARY_PATH="}, []string{"LD_LIBRARY_PATH=/lib"}}, // an empty folder would be the current one
	} {
		if got := (Config{Lib: "/lib", Flags: tt.flags}).environ(tt.old); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.flags, got, tt.want)
		}
	}
}

func TestClassTree(t *testing.T) {
	devices := []machine.Info{
		{Name: "roce0", Interface: "eth0", GUID: 0x5054_00ff_fe00_000a, Addrs: []netip.Addr{netip.MustParseAddr("fe80::5054:ff:fe00:a"), netip.MustParseAddr("10.0.0.1")}},
		{Name: "roce3", GUID: 7},
	}
	files := classTree(devices)
	for name, want := range map[string]string{
		"infiniband/roce0/node_guid":                 "5054:00ff:fe00:000a\n",
		"infiniband/roce0/ports/1/gids/0":            "fe80:0000:0000:0000:5054:00ff:fe00:000a\n",
		"infiniband/roce0/ports/1/gids/1":            "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
		"infiniband/roce0/ports/1/gid_attrs/ndevs/1": "eth0\n",
		"infiniband/roce0/ports/1/gid_attrs/types/1": "RoCE v2\n",
		"infiniband/roce3/sys_image_guid":            "0000:0000:0000:0007\n",
		"infiniband_verbs/uverbs3/ibdev":             "roce3\n",
	} {
		if got := files[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if _, ok := files["infiniband/roce0/device/net/eth0/"]; !ok {
		t.Errorf("%v", files)
	}
	if got := nodes(devices); !slices.Equal(got, []string{"rdma_cm", "uverbs0", "uverbs3"}) {
		t.Errorf("%q", got)
	}
}
