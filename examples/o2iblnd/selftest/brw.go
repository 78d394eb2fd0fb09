package selftest

import (
	"encoding/binary"
	"fmt"
)

// Direction is the direction of a brw test: does the client read or write?
type Direction uint32

// The directions.
const (
	Read  Direction = 1 // the server PUTs the data
	Write Direction = 2 // the server GETs it
)

func (d Direction) String() string {
	if d == Read {
		return "read"
	}
	return "write"
}

// Check is how a brw test fills and checks its data.
type Check uint32

// The checks.
const (
	CheckNone   Check = 1
	CheckSimple Check = 2 // the first and the last 8 bytes of each page
	CheckFull   Check = 3
)

const (
	pageSize        = 4096
	brwMagic uint64 = 0xeeb0eeb1eeb2eeb3
	brwWord         = 8
)

// words calls f with the offset of each word that a check covers, also in an incomplete last page.
func (c Check) words(size int, f func(at int) error) error {
	for page := 0; page < size && c != CheckNone; page += pageSize {
		n := min(pageSize, size-page)
		for at := 0; at+brwWord <= n; at += brwWord {
			if c == CheckFull || at == 0 || at+brwWord == pageSize {
				if err := f(page + at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Fill fills data for a check.
func (c Check) Fill(data []byte) {
	c.words(len(data), func(at int) error {
		binary.LittleEndian.PutUint64(data[at:], brwMagic)
		return nil
	})
}

// Verify checks data that the other node has filled.
func (c Check) Verify(data []byte) error {
	return c.words(len(data), func(at int) error {
		if got := binary.LittleEndian.Uint64(data[at:]); got != brwMagic {
			return fmt.Errorf("selftest: byte %d of %d: data %#x, want %#x", at, len(data), got, brwMagic)
		}
		return nil
	})
}
