package main

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	main := func(v string) debug.Module { return debug.Module{Path: "github.com/goroce/roce", Version: v} }
	for _, tt := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"installed", debug.BuildInfo{GoVersion: "go1.26.0", Main: main("v0.1.0")},
			"rocectl v0.1.0\nmodule   github.com/goroce/roce\ngo       go1.26.0 " + platform + "\n"},
		{"work tree", debug.BuildInfo{GoVersion: "go1.26.0", Main: main("v0.1.1-0.20260102030405-0123456789ab+dirty"), Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"}}},
			"rocectl v0.1.1-0.20260102030405-0123456789ab+dirty\nmodule   github.com/goroce/roce\n" +
				"commit   0123456789abcdef, with changes that are not committed\nof       2026-01-02T03:04:05Z\ngo       go1.26.0 " + platform + "\n"},
		{"nothing recorded", debug.BuildInfo{GoVersion: "go1.26.0"},
			"rocectl (devel)\ngo       go1.26.0 " + platform + "\n"},
	} {
		if got := versionOf(&tt.info).String(); got != tt.want {
			t.Errorf("%s:\n%swant\n%s", tt.name, got, tt.want)
		}
	}
}

func TestVersionCommand(t *testing.T) {
	code, stdout, stderr := rocectl(t, "version", "--json")
	var v version
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || code != exitOK || v != thisVersion() || v.Go != runtime.Version() {
		t.Errorf("exit %d, %q, %q: %v", code, stdout, stderr, err)
	}
	_, short, _ := rocectl(t, "--version")
	_, long, _ := rocectl(t, "version")
	if short != "rocectl "+v.Version+"\n" || !strings.HasPrefix(long, short) {
		t.Errorf("--version prints %q, version %q", short, long)
	}
}
