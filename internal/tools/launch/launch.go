// Package launch runs programs for libibverbs and librdmacm on this stack, with the libraries of the module cverbs in
// place of the system's.
//
// Some programs need more than the libraries: an adapter's attributes in /sys/class/infiniband, and its device node in
// /dev/infiniband. [Run] mounts both in a mount namespace, where the program and its children find them. With
// CAP_SYS_ADMIN Run makes that namespace directly; otherwise it makes it inside a user namespace with the program unshare
// of util-linux. Nothing outside of the namespace changes.
//
// The program replaces the process that calls Run, as with the programs env and nice: it has the same process ID and
// receives its signals, and its exit status is the caller's.
package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goroce/roce/internal/machine"
)

// Sysfs says whether a program sees the devices in /sys and /dev.
type Sysfs string

// Values of Sysfs.
const (
	Auto   Sysfs = "auto"   // it sees them if that is possible
	Never  Sysfs = "never"  // it does not: only the libraries know the devices
	Always Sysfs = "always" // it sees them; if that is not possible, Run fails
)

// Config says what to run.
type Config struct {
	Args    []string // the program and its arguments
	Lib     string   // folder of the libraries, of [FindLib]
	Flags   string   // value of [machine.EnvVar]; empty: that of this process, if any
	Sysfs   Sysfs
	Devices []machine.Info // those that the program sees
	// Privileged says that a driver of the devices needs capabilities for the network. A process in
	// a user namespace of its own has none.
	Privileged bool
	Log        io.Writer // for one line if the program does not see the devices in /sys and /dev
}

// ExecError says that the program could not be run.
type ExecError struct {
	Program string
	Err     error
}

func (e *ExecError) Error() string { return fmt.Sprintf("%s: %v", e.Program, e.Err) }

// Unwrap returns the reason.
func (e *ExecError) Unwrap() error { return e.Err }

// Run replaces this process by a program. It returns only if that fails.
func Run(c Config) error {
	program, err := exec.LookPath(c.Args[0])
	if err != nil {
		if wrapped, ok := err.(*exec.Error); ok {
			err = wrapped.Err
		}
		return &ExecError{c.Args[0], err}
	}
	env := c.environ(os.Environ())
	if c.Sysfs != Never {
		if err := c.show(program, env); c.Sysfs == Always && err != nil {
			return fmt.Errorf("--sysfs=always: %w", err)
		} else if err != nil {
			fmt.Fprintf(c.Log, "rocectl: %s runs without /sys/class/infiniband and /dev/infiniband, which few programs need: %v\n", c.Args[0], err)
		}
	}
	return &ExecError{c.Args[0], execute(program, c.Args, env)}
}

// environ returns the environment of the program, based on that of this process.
func (c Config) environ(env []string) []string {
	const path = "LD_LIBRARY_PATH="
	libs := path + c.Lib
	keep := env[:0:0]
	for _, v := range env {
		switch {
		case strings.HasPrefix(v, path):
			if old := v[len(path):]; old != "" {
				libs += ":" + old
			}
		case c.Flags != "" && strings.HasPrefix(v, machine.EnvVar+"="):
		default:
			keep = append(keep, v)
		}
	}
	keep = append(keep, libs)
	if c.Flags != "" {
		keep = append(keep, machine.EnvVar+"="+c.Flags)
	}
	return keep
}

// library is a file that every folder of the libraries has.
const library = "libibverbs.so.1"

// LibVar is the environment variable that names the folder of the libraries.
const LibVar = "ROCE_LIB"

// FindLib returns the folder of the libraries: dir if it is not empty, else that of [LibVar], else
// one beside this program.
func FindLib(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if at, err := filepath.EvalSymlinks(self); err == nil {
		self = at
	}
	return findLib(dir, os.Getenv(LibVar), filepath.Dir(self))
}

// findLib is FindLib for a program in the folder bin.
func findLib(dir, env, bin string) (string, error) {
	places := []string{filepath.Join(bin, "cverbs"), filepath.Join(bin, "..", "lib", "roce")}
	from := ""
	switch {
	case dir != "":
		places, from = []string{dir}, "--lib: "
	case env != "":
		places, from = []string{env}, LibVar+": "
	}
	for _, p := range places {
		p, err := filepath.Abs(p)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(filepath.Join(p, library)); err == nil {
			if strings.ContainsAny(p, ":;") { // separates folders in LD_LIBRARY_PATH
				return "", fmt.Errorf("%s%s: the name of the folder must have no colon and no semicolon", from, p)
			}
			return p, nil
		}
	}
	return "", fmt.Errorf("%sthere is no %s in %s: build it in a work tree of roce by `make cverbs`, and give the folder bin/cverbs to --lib or %s",
		from, library, strings.Join(slices.Compact(places), " or "), LibVar)
}
