//go:build linux

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/interop/child"
)

// Start starts a process in the namespace of a side, on the processor of that side.
func (l *Lab) Start(side int, cmd *exec.Cmd) error {
	return child.Pin(cmd, l.sides[side], l.Cores[side:side+1])
}

// StartFree is Start on the processors of both sides.
func (l *Lab) StartFree(side int, cmd *exec.Cmd) error {
	return child.Pin(cmd, l.sides[side], l.Cores[:])
}

// Argv prefixes a command line so that it runs in the namespace of a side, on the processor of that side.
func (l *Lab) Argv(side int, argv ...string) []string {
	return l.sides[side].Argv(append([]string{"taskset", "-c", strconv.Itoa(l.Cores[side])}, argv...)...)
}

// Child starts this program once more in the namespace of a side, on some processors, with
// variables added to its environment.
func (l *Lab) Child(side int, cores []int, env ...string) (*child.Process, error) {
	return child.Start(string("ab"[side]), l.sides[side], cores, env...)
}

// ChooseCores returns the first two processors that this process may use: of different cores
// if it can, and the same one twice if there is only one.
func ChooseCores() (c [2]int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return c, err
	}
	var cores []int
	for i := range max(runtime.NumCPU(), len(set)*64) {
		if set.IsSet(i) {
			cores = append(cores, i)
		}
	}
	return choose(cores, siblings), nil
}

func choose(cores []int, siblings func(int) []int) [2]int {
	first := cores[0]
	second := first
	for _, c := range cores[1:] {
		if !slices.Contains(siblings(first), c) {
			return [2]int{first, c}
		}
		if second == first {
			second = c
		}
	}
	return [2]int{first, second}
}

// siblings returns the threads of a processor's core, which the kernel lists as "0-1" or "0,4".
func siblings(cpu int) []int {
	b, err := os.ReadFile(filepath.Join("/sys/devices/system/cpu", fmt.Sprintf("cpu%d", cpu), "topology/thread_siblings_list"))
	if err != nil {
		return nil
	}
	return parseList(string(b))
}

func parseList(s string) (cpus []int) {
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil {
			return nil
		}
		for ; a <= b; a++ {
			cpus = append(cpus, a)
		}
	}
	return cpus
}

// CPUModel returns the name of the processors, or the architecture if Linux does not say it.
func CPUModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
