package oob

import (
	"fmt"
	"strconv"
	"strings"
)

// HexField is the name of a number in a record of hexadecimal numbers, and its largest width.
type HexField struct {
	Name string
	Bits int
}

// ParseHex parses hexadecimal numbers, one for each field. Like strtol and sscanf in the C programs it
// accepts any number of digits. It returns an error if a value has more bits than its field.
func ParseHex(numbers []string, fields []HexField) ([]uint64, error) {
	values := make([]uint64, len(fields))
	for i, f := range fields {
		v, err := strconv.ParseUint(numbers[i], 16, f.Bits)
		if err != nil {
			return nil, fmt.Errorf("%s %q is not a number of %d bits", f.Name, numbers[i], f.Bits)
		}
		values[i] = v
	}
	return values, nil
}

// Text returns the C string at the start of a record, without its NUL.
func Text(record []byte) string {
	text, _, _ := strings.Cut(string(record), "\x00")
	return text
}
