// Symbols keeps the lists of symbols that rdma-core's libraries export, and generates from them the files that
// the linker and the C compiler need, so that our libraries export the same.
//
//	go run ./symbols read LIBRARY > symbols/libibverbs-44.txt
//	go run ./symbols write
//
// A list has a line for each symbol: its name, @@ or @ as nm shows it (@: only old programs are linked to it),
// its version node, and "data" if it is no function.
//
// The second command writes, in the directory symbols/generated:
//
//   - libibverbs.map and librdmacm.map, version scripts with the nodes of all releases together;
//   - stubs.c, with the exports of libibverbs that programs do not use: the interface between it and the drivers
//     of adapters, and versions of 2005. A library that is linked to them must load. The stubs do nothing and
//     return an error;
//   - private.h, for the few functions of that interface that work, since programs call them.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "symbols:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "read":
		list, err := readLibrary(args[1])
		if err != nil {
			return err
		}
		_, err = os.Stdout.WriteString(list.String())
		return err
	case len(args) == 1 && args[0] == "write":
		files, err := generate("symbols")
		if err != nil {
			return err
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join("symbols", "generated", name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("usage: symbols read LIBRARY | symbols write")
}
