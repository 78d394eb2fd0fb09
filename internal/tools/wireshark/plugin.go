// Package wireshark generates a dissector for Wireshark and tshark from the tables of package bth. It decodes every packet of
// this stack, including packets that Wireshark's own dissector does not know.
package wireshark

import (
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/goroce/roce/bth"
)

// code is the part of the plugin that is the same for any table.
//
//go:embed roce.lua
var code string

// WritePlugin writes the plugin, a Lua file. version is the version of the tables. It appears in a comment.
func WritePlugin(w io.Writer, version string) error {
	var b strings.Builder
	version = strings.Join(strings.Fields(version), " ") // a line end would end the comment
	fmt.Fprintf(&b, "-- RoCEv2 for Wireshark 4.0 and later. Made by \"rocectl pcap wireshark\", version %s.\n", version)
	b.WriteString("-- Copy it to the folder of personal Lua plugins (Help, About, Folders), or: tshark -X lua_script:FILE\n\n")
	fmt.Fprintf(&b, "local BTH_LEN, ICRC_LEN, MAX_PACKET = %d, %d, %d\n\n", bth.BTHLen, bth.ICRCLen, bth.MaxHeaderLen+bth.MTU4096.Bytes()+bth.ICRCLen)
	writeValues(&b)
	writeFields(&b)
	writeOpcodes(&b)
	b.WriteString(code)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeValues writes the names of values, a table for each field with names.
func writeValues(b *strings.Builder) {
	b.WriteString("local values = {\n")
	for _, h := range extended {
		for _, f := range h.fields {
			if f.show != named {
				continue
			}
			fmt.Fprintf(b, "  %s = {", f.name)
			names := values(f.name)
			for _, v := range slices.Sorted(maps.Keys(names)) {
				fmt.Fprintf(b, " [%d]=%q,", v, names[v])
			}
			b.WriteString(" },\n")
		}
	}
	b.WriteString("}\n\n")
}

// writeFields writes the headers and their fields. The BTH is the first.
func writeFields(b *strings.Builder) {
	b.WriteString("-- Of each field: name, label, offset, length, mask, how it is shown, and the word for it in the Info column.\n")
	b.WriteString("local headers = {\n")
	writeHeader(b, "BTH", bth.BTHLen, base)
	for _, h := range extended {
		writeHeader(b, h.name, h.len, h.fields)
	}
	b.WriteString("}\n\n")
}

var shows = [...]string{decimal: "dec", hexadecimal: "hex", flag: "flag", named: "named"}

func writeHeader(b *strings.Builder, name string, n int, fields []field) {
	fmt.Fprintf(b, "  { name = %q, len = %d, fields = {\n", name, n)
	for _, f := range fields {
		fmt.Fprintf(b, "    { %q, %q, %d, %d, %#x, %q, %q },\n", f.name, f.label, f.at, f.size, f.mask, shows[f.show], f.info)
	}
	b.WriteString("  } },\n")
}

// writeOpcodes writes the opcode table. A row has the name, the transport, the indices of the headers in
// the table of headers, their length, whether Wireshark's own dissector knows the opcode, and whether rxe computes a different
// ICRC for it.
func writeOpcodes(b *strings.Builder) {
	b.WriteString("local opcodes = {\n")
	for i := range 256 {
		op := bth.Opcode(i)
		if !op.Known() {
			continue
		}
		info := op.Info()
		var numbers []string
		for n, h := range extended {
			if info.Headers&h.set != 0 {
				numbers = append(numbers, fmt.Sprint(n+2)) // Lua counts from 1, and the BTH is the first
			}
		}
		fmt.Fprintf(b, "  [0x%02x] = { name = %q, transport = %q, headers = { %s }, len = %d, standard = %t, quirk = %t },\n",
			i, info.Name, info.Transport, strings.Join(numbers, ", "), info.HeaderLen, standard(op), op == bth.RCFlush)
	}
	b.WriteString("}\n\n")
}

// standard reports whether Wireshark's dissector knows an opcode. Version 4.0 knows those of edition 1.3
// of the InfiniBand Architecture, except for the CNP.
func standard(op bth.Opcode) bool {
	const sendOnlyInv = 0x17 // the last one of that edition
	switch op.Transport() {
	case bth.RC, bth.UC, bth.RD, bth.UD, bth.XRC:
		return op&0x1F <= sendOnlyInv
	}
	return false
}
