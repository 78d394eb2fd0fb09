package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the build information that the Go toolchain recorded in this program. Fields that were not recorded are empty.
type version struct {
	Module   string `json:"module"`
	Version  string `json:"version"` // "(devel)": a build that has no version
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// devel is the version that the toolchain writes for a build without a version.
const devel = "(devel)"

// thisVersion describes this program.
func thisVersion() version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return versionOf(info)
}

// versionOf converts the build information. The toolchain records the commit if it
// builds in a git work tree. "go install …@v0.1.0" records only the version.
func versionOf(info *debug.BuildInfo) version {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	return version{Module: info.Main.Path, Version: cmp.Or(info.Main.Version, devel), Go: info.GoVersion, Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Commit: settings["vcs.revision"], Time: settings["vcs.time"], Modified: settings["vcs.modified"] == "true"}
}

// String returns the version as text of several lines.
func (v version) String() string {
	commit := v.Commit
	if commit != "" && v.Modified {
		commit += ", with changes that are not committed"
	}
	s := fmt.Sprintf("rocectl %s\n", v.Version)
	for _, l := range [][2]string{{"module", v.Module}, {"commit", commit}, {"of", v.Time}, {"go", v.Go + " " + v.Platform}} {
		if l[1] != "" {
			s += fmt.Sprintf("%-8s %s\n", l[0], l[1])
		}
	}
	return s
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of rocectl",
		Long: `Print the version of this rocectl, the commit that it was built from, and the Go
version that built it. Give these lines when you report a fault.

For a program that was built in a work tree, the Go toolchain makes the version from the
last tag, the time and the commit. "+dirty" means that there were changes without a commit.`,
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
