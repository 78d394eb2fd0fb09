package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestGenerated: the committed files are those generated from the committed lists.
func TestGenerated(t *testing.T) {
	files, err := generate(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("generated", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("generated/%s is not what the lists say: go run ./symbols write", name)
		}
	}
}

// TestInstalled: the list of a release equals the exports of the installed library of that release.
func TestInstalled(t *testing.T) {
	for _, library := range []string{"libibverbs", "librdmacm"} {
		t.Run(library, func(t *testing.T) {
			found, _ := filepath.Glob("/usr/lib/*/" + library + ".so.1")
			if len(found) == 0 {
				t.Skip("not installed")
			}
			// libibverbs.so.1.14.44.0 is of release 44.
			file, err := filepath.EvalSymlinks(found[0])
			if err != nil {
				t.Fatal(err)
			}
			m := regexp.MustCompile(`\.(\d+)\.\d+$`).FindStringSubmatch(file)
			if m == nil {
				t.Skipf("%s is not rdma-core's", file)
			}
			got, err := readLibrary(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := readList(library + "-" + m[1] + ".txt")
			if os.IsNotExist(err) {
				t.Skipf("no list of release %s: go run ./symbols read %s > symbols/%s-%s.txt", m[1], file, library, m[1])
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range got {
				if !slices.Contains(want, s) {
					t.Errorf("%s is not in the list of release %s", s, m[1])
				}
			}
			for _, s := range want {
				if !slices.Contains(got, s) {
					t.Errorf("%s of the list is not in release %s", s, m[1])
				}
			}
		})
	}
}
