package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/goroce/roce/bench/internal/harness"
)

// profileVariable is the environment variable of an end with the folder for CPU profiles.
const profileVariable = "ROCE_BENCH_PROFILE"

// profiled makes roles write a CPU profile of every Run. The file has the name of the measurement; a later round
// replaces the file of an earlier one.
func profiled(roles harness.Roles, dir string) harness.Roles {
	all := make(harness.Roles)
	for kind, make := range roles {
		all[kind] = func(s harness.Spec) (harness.Role, error) {
			r, err := make(s)
			if err != nil {
				return nil, err
			}
			end := "b"
			if s.Active {
				end = "a"
			}
			name := fmt.Sprintf("%s-%s-%s-%d-%d-%d-%s.pprof", s.Kind, s.Link, s.Op, s.Size, s.PMTU, s.QPs, end)
			return profile{r, filepath.Join(dir, name)}, nil
		}
	}
	return all
}

type profile struct {
	harness.Role
	name string
}

func (p profile) Run(ctx context.Context) (harness.Measure, error) {
	f, err := os.Create(p.name)
	if err != nil {
		return harness.Measure{}, err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return harness.Measure{}, err
	}
	defer pprof.StopCPUProfile()
	return p.Role.Run(ctx)
}
