package abi

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/roce"
)

// headers is the folder of the headers that declare the structures.
const headers = "../../engine"

// structs maps the names in engine.h and cm.h to the types.
var structs = map[string]any{
	"roce_device_info": DeviceInfo{}, "roce_gid": GID{}, "roce_device_attr": DeviceAttr{}, "roce_port_attr": PortAttr{},
	"roce_sge": SGE{}, "roce_send_wr": SendWR{}, "roce_recv_wr": RecvWR{}, "roce_wc": WC{}, "roce_caps": Caps{},
	"roce_ah_attr": AHAttr{}, "roce_qp_attr": QPAttr{}, "roce_qp_init": QPInit{}, "roce_srq_init": SRQInit{},
	"roce_recv_slot": roce.RecvSlot{}, "roce_recv_ring": roce.RecvRingState{},
	"roce_mr_info": MRInfo{}, "roce_event": Event{}, "roce_rereg": Rereg{},
	"roce_cm_addr": CMAddr{}, "roce_cm_info": CMInfo{}, "roce_cm_param": CMParam{}, "roce_cm_event": CMEvent{},
}

// fieldsOf returns the names of the fields of a structure of the header, in order.
func fieldsOf(t *testing.T, text, name string) (fields []string) {
	t.Helper()
	m := regexp.MustCompile(`(?s)struct ` + name + ` \{(.*?)\};`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no header has struct %s", name)
	}
	body := regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(m[1], "")
	for _, line := range strings.Split(body, ";") {
		for _, declarator := range strings.Split(line, ",") {
			if id := regexp.MustCompile(`(\w+)(\[\w+\])?\s*$`).FindStringSubmatch(declarator); id != nil {
				fields = append(fields, id[1])
			}
		}
	}
	return fields
}

// TestLayout compares the offset of each field with the C compiler's.
func TestLayout(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	var text []byte
	for _, name := range []string{"engine.h", "cm.h"} {
		b, err := os.ReadFile(filepath.Join(headers, name))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, b...)
	}
	var program, want bytes.Buffer
	fmt.Fprintf(&program, "#include <stdio.h>\n#include \"cm.h\"\nint main(void) {\n")
	for name, v := range structs {
		typ := reflect.TypeOf(v)
		fields := fieldsOf(t, string(text), name)
		if len(fields) != typ.NumField() {
			t.Errorf("struct %s has %d fields, %v has %d: %v", name, len(fields), typ, typ.NumField(), fields)
			continue
		}
		for i, f := range fields {
			fmt.Fprintf(&program, "printf(\"%s.%s %%zu %%zu\\n\", offsetof(struct %s, %s), sizeof ((struct %s *)0)->%s);\n", name, f, name, f, name, f)
			fmt.Fprintf(&want, "%s.%s %d %d\n", name, f, typ.Field(i).Offset, typ.Field(i).Type.Size())
		}
		fmt.Fprintf(&program, "printf(\"%s %%zu\\n\", sizeof(struct %s));\n", name, name)
		fmt.Fprintf(&want, "%s %d\n", name, typ.Size())
	}
	fmt.Fprintln(&program, "return 0; }")
	bin := filepath.Join(t.TempDir(), "layout")
	build := exec.Command(cc, "-x", "c", "-I", headers, "-o", bin, "-")
	build.Stdin = &program
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(string(got), "\n"), strings.Split(want.String(), "\n")
	for i := range min(len(gotLines), len(wantLines)) {
		if gotLines[i] != wantLines[i] {
			t.Errorf("C has %q, Go %q", gotLines[i], wantLines[i])
		}
	}
	if len(gotLines) != len(wantLines) {
		t.Errorf("C has %d lines, Go %d", len(gotLines), len(wantLines))
	}
}
