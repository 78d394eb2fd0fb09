package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bench/internal/lab"
	"github.com/goroce/roce/bench/internal/result"
)

// environment describes this run.
func environment(o options, cores [2]int) result.Environment {
	e := result.Environment{Time: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), CPU: fmt.Sprintf("%s, %d processors", lab.CPUModel(), runtime.NumCPU()), Cores: cores, Quick: o.quick}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel = unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	}
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", o.root}, args...)...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	e.Commit = git("rev-parse", "--short", "HEAD")
	if e.Commit != "" && git("status", "--porcelain", "--untracked-files=no") != "" {
		e.Commit += " and changes"
	}
	return e
}
