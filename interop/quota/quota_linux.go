// Package quota limits processes to a share of a processor, like the limit of a container: the kernel stops a process
// that has used up its share until the next period begins.
package quota

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// period is the usual period for containers.
const period = 100 * time.Millisecond

// Group is a control group of processes that share a quota.
type Group struct{ dir, parent string }

var made atomic.Uint32

// New makes a group that may use a share of a processor: 0.5 is half of one. It needs root, and a kernel that limits
// processor time, by control groups of version 2 or 1. The error says what is missing.
func New(share float64) (*Group, error) {
	h, err := find()
	if err != nil {
		return nil, err
	}
	g := &Group{dir: filepath.Join(h.dir, fmt.Sprintf("roce-%d-%d", os.Getpid(), made.Add(1))), parent: h.dir}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("no control group for a quota: %w", err)
	}
	most := time.Duration(share * float64(period))
	for _, f := range h.limit(most.Microseconds(), period.Microseconds()) {
		if err := write(filepath.Join(g.dir, f.name), f.text); err != nil {
			g.Close()
			return nil, fmt.Errorf("no quota: %w", err)
		}
	}
	return g, nil
}

// Add moves a process to the group.
func (g *Group) Add(pid int) error {
	return write(filepath.Join(g.dir, "cgroup.procs"), strconv.Itoa(pid))
}

// Throttled returns in how many periods the kernel has stopped processes of the group.
func (g *Group) Throttled() (int, error) {
	b, err := os.ReadFile(filepath.Join(g.dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "nr_throttled "); ok {
			return strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return 0, fmt.Errorf("%s: no nr_throttled", g.dir)
}

// Close removes the group. Its processes continue without a quota.
func (g *Group) Close() error {
	b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	for _, pid := range strings.Fields(string(b)) {
		if e := write(filepath.Join(g.parent, "cgroup.procs"), pid); e != nil && !gone(pid) {
			err = cmp.Or(err, e)
		}
	}
	return cmp.Or(os.Remove(g.dir), err)
}

func gone(pid string) bool {
	_, err := os.Stat("/proc/" + pid)
	return errors.Is(err, os.ErrNotExist)
}

// hierarchy is a folder in which groups with quotas can be made.
type hierarchy struct {
	dir   string
	limit func(most, of int64) []file // the files that set a limit, in µs, and their contents
}

type file struct{ name, text string }

func limit2(most, of int64) []file { return []file{{"cpu.max", fmt.Sprintf("%d %d", most, of)}} }

func limit1(most, of int64) []file {
	return []file{{"cpu.cfs_period_us", fmt.Sprint(of)}, {"cpu.cfs_quota_us", fmt.Sprint(most)}}
}

// find returns the hierarchy with the cpu controller.
func find() (hierarchy, error) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return hierarchy{}, err
	}
	err = errors.New("no control groups with the cpu controller are mounted")
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		switch dir := fields[1]; {
		case fields[2] == "cgroup2" && has(dir, "cgroup.controllers"):
			if has(dir, "cgroup.subtree_control") {
				return hierarchy{dir, limit2}, nil
			}
			if e := write(filepath.Join(dir, "cgroup.subtree_control"), "+cpu"); e != nil {
				err = fmt.Errorf("the cpu controller cannot be enabled for groups: %w", e)
				continue
			}
			return hierarchy{dir, limit2}, nil
		case fields[2] == "cgroup" && slices.Contains(strings.Split(fields[3], ","), "cpu"):
			return hierarchy{dir, limit1}, nil
		}
	}
	return hierarchy{}, err
}

// has reports whether a list of controllers contains the cpu controller.
func has(dir, list string) bool {
	b, _ := os.ReadFile(filepath.Join(dir, list))
	return slices.Contains(strings.Fields(string(b)), "cpu")
}

// write writes to an existing file of a control group.
func write(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return cmp.Or(err, f.Close())
}
