package impair_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	utf16pkg "unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/roce/internal/impair"
)

// TestParse: the keys of a file become the properties of rules.
func TestParse(t *testing.T) {
	file, err := impair.Parse("all.yaml", []byte(`
seed: 0x10
hold: 50
rules:
  - name: everything that a packet can be
    action: rewrite
    icrc: wrong
    set: {psn: 5, migreq: 1}
    match:
      connection: 2
      direction: a-to-b
      opcode: [WRITE_FIRST, "0x0c", "send_*imm"]
      qpn: 0x12
      psn: 6
      relative-psn: 7
      iteration: 2
      source: 10.0.0.1
      destination: 10.0.0.2
      address: fd00::1
      after: 1s
      until: 1m
      nth: 3
      every: 4
      count: 5
      probability: 5%
  - &late {action: delay, time: 2ms, jitter: 1ms}
  - {action: reorder, by: 5, time: 3ms, match: {direction: b-to-a, opcode: CNP}}
  - {action: dup, copies: 3, match: {direction: both}}
  - {action: corrupt, bits: 2, icrc: right}
  - {action: pass}
  - *late
`))
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Name, Rule string
		Line       int
	}
	var got []row
	for i := range file.Rules {
		r := &file.Rules[i]
		got = append(got, row{r.Name, r.Rule.String(), r.Line})
	}
	want := []row{
		{"everything that a packet can be", "rewrite,tx,op=RC_SEND_LAST_WITH_IMM|RC_SEND_ONLY_WITH_IMM|RC_WRITE_FIRST|RC_READ_REQUEST,qpn=0x12,psn=0x6,rel=7," +
			"addr=fd00::1,src=10.0.0.1,dst=10.0.0.2,conn=2,iter=2,nth=3,every=4,count=5,after=1s,until=1m0s,p=0.05,icrc=wrong,set.psn=0x5,set.migreq=0x1", 5},
		{"rule 2", "delay,time=2ms,jitter=1ms", 26},
		{"rule 3", "reorder,rx,op=CNP,time=3ms,by=5", 27},
		{"rule 4", "dup,copies=3", 28},
		{"rule 5", "corrupt,bits=2,icrc=right", 29},
		{"rule 6", "pass", 30},
		{"rule 7", "delay,time=2ms,jitter=1ms", 31},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if file.Seed != 16 || file.Hold != 50 {
		t.Errorf("seed %d, hold %d", file.Seed, file.Hold)
	}
}

// TestForms: the reader accepts files with other line ends, encodings and blanks, as different editors write them.
func TestForms(t *testing.T) {
	const text = "# Über alles\nrules:\n  - name: 日本\n    action: drop\n    match: {opcode: \"SEND_*\", nth: 2}\n"
	utf16 := []byte{0xFF, 0xFE}
	for _, u := range utf16pkg.Encode([]rune(text)) {
		utf16 = append(utf16, byte(u), byte(u>>8))
	}
	for name, form := range map[string]string{
		"as it is": text, "CRLF": strings.ReplaceAll(text, "\n", "\r\n"), "a byte order mark": "\uFEFF" + text, "tabs behind colons": strings.ReplaceAll(text, ": ", ":\t"),
		"blanks at the ends": strings.ReplaceAll(text, "\n", " \t\n"), "no end": strings.TrimSuffix(text, "\n"), "UTF-16": string(utf16),
	} {
		f, err := impair.Parse("x.yaml", []byte(form))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(f.Rules) != 1 || f.Rules[0].Name != "日本" || f.Rules[0].Line != 3 || f.Rules[0].Nth != 2 {
			t.Errorf("%s: %+v", name, f.Rules)
		}
	}
}

// TestMistakes: testdata/mistakes has files with mistakes, and beside each the expected error.
func TestMistakes(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(name, ".yaml") + ".golden"
			_, err = impair.Parse(filepath.Base(name), text)
			if err == nil {
				t.Fatal("the file was accepted")
			}
			if _, ok := errors.AsType[*impair.FileError](err); !ok {
				t.Errorf("%T is no FileError", err)
			}
			got := err.Error() + "\n"
			if os.Getenv("UPDATE") == "1" {
				os.WriteFile(golden, []byte(got), 0o644)
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestLoad: files that cannot be read.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, make([]byte, 1<<20+1), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{filepath.Join(dir, "none.yaml"): "no such file", large: "larger than", dir: "directory"} {
		if _, err := impair.Load(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}
}

// FuzzParse: any input, also one that is not text, gives valid rules or an error.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/mistakes/*.yaml")
	more, _ := filepath.Glob("../../examples/impair/*.yaml")
	for _, name := range append(files, more...) {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := impair.Parse("fuzz.yaml", text)
		if err != nil {
			return
		}
		for i := range file.Rules {
			if err := file.Rules[i].Check(); err != nil {
				t.Errorf("rule %d was accepted, but: %v", i+1, err)
			}
		}
	})
}

func TestParseInterface(t *testing.T) {
	for text, want := range map[string]impair.Interface{"eth0": {Name: "eth0"}, "eth0@left": {Name: "eth0", Netns: "left"}, "a@/run/x": {Name: "a", Netns: "/run/x"}} {
		got, err := impair.ParseInterface(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "@left", "eth0@"} {
		if i, err := impair.ParseInterface(text); err == nil {
			t.Errorf("%q is %+v", text, i)
		}
	}
}
