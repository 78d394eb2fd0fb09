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
	parent, v2, err := find()
	if err != nil {
		return nil, err
	}
	g := &Group{dir: filepath.Join(parent, fmt.Sprintf("roce-%d-%d", os.Getpid(), made.Add(1))), parent: parent}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("no control group for a quota: %w", err)
	}
	most, of := int64(share*float64(period.Microseconds())), period.Microseconds()
	limits := [][2]string{{"cpu.cfs_period_us", fmt.Sprint(of)}, {"cpu.cfs_quota_us", fmt.Sprint(most)}}
	if v2 {
		limits = [][2]string{{"cpu.max", fmt.Sprintf("%d %d", most, of)}}
	}
	for _, l := range limits {
		if err := write(filepath.Join(g.dir, l[0]), l[1]); err != nil {
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

// find returns the folder in which groups with quotas can be made, and whether it is of version 2.
func find() (dir string, v2 bool, err error) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", false, err
	}
	err = errors.New("no control groups with the cpu controller are mounted")
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		switch dir := fields[1]; {
		case fields[2] == "cgroup2" && has(dir, "cgroup.controllers"):
			if !has(dir, "cgroup.subtree_control") {
				if e := write(filepath.Join(dir, "cgroup.subtree_control"), "+cpu"); e != nil {
					err = fmt.Errorf("the cpu controller cannot be enabled for groups: %w", e)
					continue
				}
			}
			return dir, true, nil
		case fields[2] == "cgroup" && slices.Contains(strings.Split(fields[3], ","), "cpu"):
			return dir, false, nil
		}
	}
	return "", false, err
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
