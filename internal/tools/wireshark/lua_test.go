package wireshark

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/roce/bth"
)

// The plugin runs under the Lua of each version of Wireshark, whether the bit library returns integers or floats. The text of a
// packet of each opcode is the same in all versions, and so is the verdict on right and wrong ICRCs.
func TestLuaVersions(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "roce.lua")
	var text bytes.Buffer
	if err := WritePlugin(&text, "of a test"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plugin, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	c := newCapture(t)
	var input strings.Builder
	packets := 0
	for op := range 256 {
		for _, v6 := range []bool{false, true} {
			ip, udp := 14, 14+20
			if v6 {
				udp = 14 + 40
			}
			b := c.packet(bth.Opcode(op), v6, 100+op%4)
			fmt.Fprintf(&input, "%d %d %v %x\n", ip, udp, v6, b)
			b[len(b)-20] ^= 0x80
			fmt.Fprintf(&input, "%d %d %v %x\n", ip, udp, v6, b)
			packets += 2
		}
	}
	var first string
	for _, lua := range []string{"lua5.2", "lua5.4"} {
		path, err := exec.LookPath(lua)
		if err != nil {
			t.Skipf("%s is not installed: it is a Debian package", lua)
		}
		for _, numbers := range []string{"integer", "float"} {
			cmd := exec.Command(path, "testdata/stub.lua", plugin, numbers)
			cmd.Stdin = strings.NewReader(input.String())
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s, %s: %v\n%s", lua, numbers, err, errs.String())
			}
			if first == "" {
				first = string(out)
			}
			lines, want := strings.Split(string(out), "\n"), strings.Split(first, "\n")
			if len(lines) != packets+1 {
				t.Fatalf("%s, %s: %d lines for %d packets", lua, numbers, len(lines), packets)
			}
			for i, line := range lines[:packets] {
				status, info, _ := strings.Cut(line, "\t")
				op := bth.Opcode(i / 4)
				right := fmt.Sprint(1 - i%2)
				if line != want[i] || status != right || !strings.Contains(info, "psn 0x") {
					t.Errorf("%s, %s: of packet %d, %v: %q, want verdict %s and %q", lua, numbers, i, op, line, right, want[i])
				}
			}
		}
	}
}
