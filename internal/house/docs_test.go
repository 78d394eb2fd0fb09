package house

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	mdLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHead  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	mdDrop  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	version = regexp.MustCompile(`^\d+\.\d+\.\d+ \((\d{4}-\d\d-\d\d|not yet released)\)$`)
)

// If a Markdown file has a link to a file of the repository, this file exists and has the heading that the link
// names.
func TestLinks(t *testing.T) {
	dir := root(t)
	links := 0
	eachFile(t, func(name string, text []byte) {
		if path.Ext(name) != ".md" {
			return
		}
		for _, m := range mdLink.FindAllSubmatch(text, -1) {
			link := string(m[1])
			if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			links++
			file, heading, _ := strings.Cut(link, "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			at := filepath.Join(dir, filepath.FromSlash(target))
			if _, err := os.Stat(at); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, link)
				continue
			}
			if heading == "" || path.Ext(target) != ".md" {
				continue
			}
			page, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			if !hasHeading(page, heading) {
				t.Errorf("%s: %s has no heading %q", name, target, heading)
			}
		}
	})
	if links == 0 {
		t.Error("found no link at all")
	}
}

// hasHeading tells whether a page has a heading whose anchor is the given one.
func hasHeading(page []byte, anchor string) bool {
	for _, h := range mdHead.FindAllSubmatch(page, -1) {
		a := mdDrop.ReplaceAllString(strings.ToLower(string(h[1])), "")
		if strings.ReplaceAll(a, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// The index names every page of docs.
func TestDocsIndex(t *testing.T) {
	docs := filepath.Join(root(t), "docs")
	index, err := os.ReadFile(filepath.Join(docs, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(docs, func(p string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(p) != ".md" {
			return err
		}
		name, err := filepath.Rel(docs, p)
		name = filepath.ToSlash(name)
		if name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md does not name %s", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The README has at most two screens. The README and docs/rocectl.md name the newest version of the changelog.
func TestVersions(t *testing.T) {
	dir := root(t)
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var versions []string
	for line := range strings.Lines(read("CHANGELOG.md")) {
		if h, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
			if !version.MatchString(h) {
				t.Errorf("CHANGELOG.md: %q is not like 1.2.3 (2026-01-31)", h)
			}
			number, _, _ := strings.Cut(h, " ")
			versions = append(versions, number)
		}
	}
	if len(versions) == 0 {
		t.Fatal("CHANGELOG.md has no version")
	}
	install := "go install github.com/goroce/roce/cmd/rocectl@v" + versions[0] + "\n"
	for _, name := range []string{"README.md", "docs/rocectl.md"} {
		if !strings.Contains(read(name), install) {
			t.Errorf("%s does not say %q", name, install)
		}
	}
	if n := strings.Count(read("README.md"), "\n"); n > 100 {
		t.Errorf("README.md has %d lines, more than two screens: move some to docs", n)
	}
}
