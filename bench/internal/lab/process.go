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
)

// Start starts a process in the namespace of a side, on that side's core: a child
// has the namespace and the processors of the thread that made it.
func (l *Lab) Start(side int, cmd *exec.Cmd) error {
	return l.sides[side].Do(func() error {
		var before unix.CPUSet
		if err := unix.SchedGetaffinity(0, &before); err != nil {
			return err
		}
		var one unix.CPUSet
		one.Set(l.Cores[side])
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("core %d: %w", l.Cores[side], err)
		}
		err := cmd.Start()
		if back := unix.SchedSetaffinity(0, &before); err == nil {
			err = back
		}
		return err
	})
}

// Shared reports whether both sides have to do with one core.
func (l *Lab) Shared() bool { return l.Cores[0] == l.Cores[1] }

// chooseCores takes the first two processors this process may use, and of those
// with more than one thread only one where it can.
func chooseCores() (c [2]int, err error) {
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

// siblings are the threads of a processor's core, as the kernel lists them: "0-1" or "0,4".
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
