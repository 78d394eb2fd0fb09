package programs

import (
	"bufio"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// suite is the directory of rdma-core's tests in Debian's python3-pyverbs.
const suite = "/usr/share/doc/rdma-core/tests"

// generic matches the files of the suite that do not need adapters of one vendor.
var generic = regexp.MustCompile(`^test_(?:[a-z]+|cq_events|device|flow|odp|parent_domain|relaxed_ordering|rss_traffic|shared_pd|tag_matching)\.py$`)

// TestPyverbs runs rdma-core's own suite. No test may fail, and it may skip only the tests that docs/cverbs.md lists
// with reasons.
func TestPyverbs(t *testing.T) {
	needs(t, "python3")
	if _, err := os.Stat(suite); err != nil {
		t.Skipf("rdma-core's suite is not installed: %v", err)
	}
	dir := unpack(t)
	a, _ := hosts(t, 4200)
	var want []string
	text, err := os.ReadFile("testdata/pyverbs-skipped.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		want = append(want, strings.TrimSpace(line))
	}
	p := a.start(t, "--link raw", "/usr/bin/python3", filepath.Join(dir, "run_tests.py"), "-v", "-k", "tests.test_")
	ended(t, p, 10*time.Minute)
	var skipped []string
	passed := 0
	for s := bufio.NewScanner(strings.NewReader(p.Output())); s.Scan(); {
		test, verdict, ok := strings.Cut(s.Text(), " ... ")
		switch {
		case !ok || strings.Contains(test, "mlx5") || strings.Contains(test, "efa") || strings.Contains(test, "cuda"):
		case verdict == "ok":
			passed++
		case strings.HasPrefix(verdict, "skipped "):
			skipped = append(skipped, test+": "+strings.Trim(strings.TrimPrefix(verdict, "skipped "), `'"`))
		}
	}
	t.Logf("%d tests passed, %d skipped", passed, len(skipped))
	for _, s := range skipped {
		if !slices.Contains(want, s) {
			t.Errorf("skipped, which testdata/pyverbs-skipped.txt does not say: %s", s)
		}
	}
	for _, s := range want {
		if s != "" && !slices.Contains(skipped, s) {
			t.Errorf("testdata/pyverbs-skipped.txt says that it is skipped, but it is not: %s", s)
		}
	}
}

// unpack copies the suite to a directory where Python finds it.
func unpack(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files, err := os.ReadDir(suite)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".gz")
		if strings.HasPrefix(name, "test_") && !generic.MatchString(name) {
			continue
		}
		in, err := os.Open(filepath.Join(suite, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		var r io.Reader = in
		if name != f.Name() {
			if r, err = gzip.NewReader(in); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
