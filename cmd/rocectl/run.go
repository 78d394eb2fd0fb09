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
NICs: ibv_devinfo, perftest, rping, pyverbs, UCX, Open MPI. The program, and what it
starts, loads the libraries of this stack in place of the system's, and finds a device
roce0, roce1, ... for each --dev. Without --dev that is each network interface which is
up and has an address, the loopback only if there is no other, by UDP sockets, which
need no privilege.

The program takes the place of rocectl, as with env and nice: it has its process number
and receives its signals, and the exit status is the program's. It is 127 if there is no
such program, and 126 if it cannot be run.

Some programs look for a device in /sys/class/infiniband and /dev/infiniband. With
--sysfs=auto they find it there, and nothing outside of the program changes: rocectl makes
a mount namespace, as root directly and as another user in a user namespace. Where neither
is possible the program runs without, and a line on stderr says so. In a user namespace
other users have no names, and programs with set-user-ID no privilege; --link raw and xdp
need capabilities that a process has only outside of one.

The flags are passed on in the environment variable ROCE_FLAGS. Without any, the variable
is left as it is. It can also be set by hand, together with LD_LIBRARY_PATH, in place of
this command. With --capture each process writes a file of its own: %p in the name is the
number of the process, and a process that finds the file there appends that number.`

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
	f.SetInterspersed(false) // flags behind the program are the program's
	f.StringVar(&cfg.Lib, "lib", "", "`DIR` with libibverbs.so.1 (default: "+launch.LibVar+", or beside rocectl: cverbs, ../lib/roce)")
	f.StringVar(&sysfs, "sysfs", string(launch.Auto), "devices in /sys/class/infiniband and /dev/infiniband: auto: if possible, never, always: or fail")
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

// absolute makes the values of flags that name files independent of the folder that the program
// is in.
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

// programError gives an error of a program that cannot be run the exit code that a shell has for it.
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
