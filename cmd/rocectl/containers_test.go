package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// repository is the root of the work tree.
const repository = "../.."

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// accepts checks that rocectl accepts a command line. words are the words after its name.
func accepts(t *testing.T, words []string) {
	t.Helper()
	c, args, err := newRoot().Find(words)
	if err != nil {
		t.Errorf("rocectl %q: %v", words, err)
		return
	}
	if err := c.ParseFlags(args); err != nil {
		t.Errorf("rocectl %q: %v", words, err)
	} else if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		t.Errorf("rocectl %q: %v", words, err)
	}
}

// The examples for containers use flags that rocectl has, and files that exist or that scripts/dist makes.
func TestContainerExamples(t *testing.T) {
	docker := read(t, "docs/containers/Dockerfile")
	var entry, cmd []string
	for line := range strings.Lines(docker) {
		for word, to := range map[string]*[]string{"ENTRYPOINT ": &entry, "CMD ": &cmd} {
			if list, ok := strings.CutPrefix(line, word); ok {
				if err := json.Unmarshal([]byte(list), to); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
		}
	}
	if len(entry) == 0 || entry[0] != "rocectl" || len(cmd) == 0 {
		t.Fatalf("entry point %q, command %q", entry, cmd)
	}
	accepts(t, append(entry[1:], cmd...))
	if dist := read(t, "scripts/dist"); !strings.Contains(dist, "goroce_${VERSION}_$arch.deb") || !strings.Contains(docker, "COPY goroce_*_${TARGETARCH}.deb ") {
		t.Error("the package has another name than the image takes")
	}
	workflow := read(t, "docs/containers/workflow.yml")
	lines := regexp.MustCompile(`(?m)^ *roce/bin/rocectl (.*?)(?: &)?$`).FindAllStringSubmatch(workflow, -1)
	if len(lines) != 2 {
		t.Fatalf("%d lines of the workflow run rocectl", len(lines))
	}
	for _, l := range lines {
		accepts(t, strings.Fields(l[1]))
	}
	for _, name := range []string{"scripts/cverbs", "cmd/rocectl", "go.mod"} {
		if !strings.Contains(workflow, name) {
			t.Errorf("the workflow does not use %s", name)
		}
		if _, err := os.Stat(filepath.Join(repository, name)); err != nil {
			t.Error(err)
		}
	}
}
