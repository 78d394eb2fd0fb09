package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is what the Go toolchain recorded about the build of this program.
// Fields that it did not record are empty.
type version struct {
	Module   string `json:"module"`
	Version  string `json:"version"` // "(devel)": a build that has no version
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// devel is the version of a build that has none, as the toolchain writes it.
const devel = "(devel)"

// thisVersion describes this program.
func thisVersion() version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return versionOf(info)
}

// versionOf reads the build information. The toolchain records the commit when it
// builds in a git work tree; "go install …@v0.1.0" records the version alone.
func versionOf(info *debug.BuildInfo) version {
	v := version{Module: info.Main.Path, Version: info.Main.Version, Go: info.GoVersion, Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if v.Version == "" {
		v.Version = devel
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// String is the version in lines for people.
func (v version) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rocectl %s\n", v.Version)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-8s %s\n", name, value)
		}
	}
	commit := v.Commit
	if commit != "" && v.Modified {
		commit += ", with changes that are not committed"
	}
	line("module", v.Module)
	line("commit", commit)
	line("of", v.Time)
	line("go", v.Go+" "+v.Platform)
	return b.String()
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print which rocectl this is",
		Long: `Print the version of this rocectl, the commit that it was built from, and the Go
version that built it. Give these lines when you report a fault.

A program built in a work tree has a version that the Go toolchain makes of the last
tag, the time and the commit; "+dirty" means that files were changed and not committed.`,
		Example: `  rocectl version
  rocectl version --json`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			v := thisVersion()
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(v)
			}
			_, err := fmt.Fprint(c.OutOrStdout(), v)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return c
}
