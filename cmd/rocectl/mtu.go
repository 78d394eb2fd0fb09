package main

import (
	"fmt"
	"strconv"

	"github.com/goroce/roce"
)

// mtuFlag is a path MTU on the command line, in bytes.
type mtuFlag struct{ mtu *roce.MTU }

// Set reads the flag.
func (f mtuFlag) Set(s string) error {
	for m := roce.MTU256; m <= roce.MTU4096; m++ {
		if strconv.Itoa(m.Bytes()) == s {
			*f.mtu = m
			return nil
		}
	}
	return fmt.Errorf("want 256, 512, 1024, 2048 or 4096")
}

// String is empty for the interface's MTU.
func (f mtuFlag) String() string {
	if f.mtu == nil || *f.mtu == 0 {
		return ""
	}
	return strconv.Itoa(f.mtu.Bytes())
}

// Type is the name of the flag's argument in help texts.
func (mtuFlag) Type() string { return "bytes" }
