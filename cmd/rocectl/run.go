package main

import (
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/launch"
	"github.com/goroce/roce/internal/tools/usage"
)

const runHelp = `Run a program that was written for libibverbs or librdmacm, unchanged, on software
NICs: ibv_devinfo, perftest, rping, pyverbs, UCX, Open MPI. The program and its child
processes load the libraries of this stack in place of the system's, and find the devices
roce0, roce1, ..., one for each --dev. Without --dev there is a device for each network
interface that is up and has an address, for the loopback interface only if there is no
other. These devices use UDP sockets, which need no privilege.

The program replaces rocectl, as with env and nice: it has the same process number and
receives the signals, and the exit status is the program's. The exit status is 127 if there
is no such program, and 126 if it cannot be run.

Some programs look for a device in /sys/class/infiniband and /dev/infiniband. With
--sysfs=auto they find it there, and nothing outside of the program changes: rocectl makes
a mount namespace, for root directly and for other users in a user namespace. If neither is
possible, the program runs without these folders, and a line on stderr says so. In a user
namespace other users have no names, and set-user-ID programs get no privilege. --link raw
and xdp need capabilities that a process in a user namespace does not have.

The program gets the flags in the environment variable ROCE_FLAGS. Without flags the
variable is not changed. Instead of this command one can set ROCE_FLAGS and LD_LIBRARY_PATH
by hand. With --capture each process writes its own file: %p in the name becomes the process
number. If the file exists, the process appends its number to the name.`

func runCommand() *cobra.Command {
	var (
		cfg   launch.Config
		flags machine.EnvFlags
		sysfs string
	)
	c := &cobra.Command{
		Use:   "run [flags] [--] PROGRAM [ARG...]",
		Short: "Run a program written for libibverbs or librdmacm",
		Long:  runHelp,
		Example: `  rocectl run -- ibv_devinfo
  rocectl run --dev eth0 --link raw -- ib_send_bw -d roce0 -x 1
  rocectl run --dev 127.0.0.1 -- rping -s -a 127.0.0.1 -v
  rocectl run --dev eth0 --loss 1% --seed 7 --capture c-%p.pcapng -- ucx_perftest -t tag_lat`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage.Errorf("a program is missing: want rocectl run [flags] [--] PROGRAM [ARG...]")
			}
			return nil
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // flags after the program belong to the program
	f.StringVar(&cfg.Lib, "lib", "", "`DIR` with libibverbs.so.1 (default: "+launch.LibVar+", or beside rocectl: cverbs, ../lib/roce)")
	f.StringVar(&sysfs, "sysfs", string(launch.Auto), "whether the program finds devices in /sys/class/infiniband and /dev/infiniband: auto (if possible), never, or always (fail if impossible)")
	flags.Register(f)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := usage.OneOf("--sysfs", sysfs, sysfsModes()...); err != nil {
			return err
		}
		if err := absolute(c, "capture", "log"); err != nil {
			return err
		}
		if cfg.Flags = flags.Text(f); cfg.Flags == "" {
			env, err := machine.ParseEnv()
			if err != nil {
				return err
			}
			flags = *env
		}
		if err := flags.Validate(); err != nil {
			return err
		}
		var err error
		if cfg.Devices, err = machine.New(flags).List(); err != nil {
			return err
		}
		if cfg.Lib, err = launch.FindLib(cfg.Lib); err != nil {
			return err
		}
		cfg.Args, cfg.Sysfs, cfg.Privileged, cfg.Log = args, launch.Sysfs(sysfs), flags.Privileged(), c.ErrOrStderr()
		return programError(launch.Run(cfg))
	}
	return c
}

func sysfsModes() []string {
	return []string{string(launch.Auto), string(launch.Never), string(launch.Always)}
}

// absolute makes the file names in flags absolute, because the program may change its folder.
func absolute(c *cobra.Command, flags ...string) error {
	for _, name := range flags {
		f := c.Flags().Lookup(name)
		if !f.Changed || f.Value.String() == "-" {
			continue
		}
		abs, err := filepath.Abs(f.Value.String())
		if err != nil {
			return err
		}
		if err := f.Value.Set(abs); err != nil {
			return err
		}
	}
	return nil
}

// programError gives the error of a program that cannot be run the exit code that a shell uses.
func programError(err error) error {
	failed, ok := errors.AsType[*launch.ExecError](err)
	switch {
	case !ok:
		return err
	case errors.Is(failed, exec.ErrNotFound), errors.Is(failed, fs.ErrNotExist):
		return exitError{failed, 127}
	}
	return exitError{failed, 126}
}
