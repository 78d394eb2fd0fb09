package main

import (
	"fmt"
	"os"
	"strings"
)

// pageLists is the kernel's vm.percpu_pagelist_high_fraction. If it is 0, the list of free pages
// that each core keeps may become long. With packet sockets the sending core allocates pages and
// the receiving core frees them. The list of the receiving core may then hold a gigabyte before
// it returns pages, and the sending core uses pages that were never touched. In a virtual machine
// the first touch of a page may cost more than the packets in it.
const (
	pageLists      = "/proc/sys/vm/percpu_pagelist_high_fraction"
	shortPageLists = "2000"
)

// shortenPageLists keeps the lists short until the caller calls restore. note has the value of the setting, or the
// reason why it could not be changed.
func shortenPageLists() (restore func(), note string) {
	nothing := func() {}
	b, err := os.ReadFile(pageLists)
	if err != nil {
		return nothing, "" // this kernel has no such setting
	}
	was := strings.TrimSpace(string(b))
	if was != "0" {
		return nothing, fmt.Sprintf("vm.percpu_pagelist_high_fraction is %s", was)
	}
	if err := os.WriteFile(pageLists, []byte(shortPageLists), 0); err != nil {
		return nothing, fmt.Sprintf("vm.percpu_pagelist_high_fraction is 0, which may slow down READs on raw: %v", err)
	}
	return func() { os.WriteFile(pageLists, []byte(was), 0) }, "vm.percpu_pagelist_high_fraction " + shortPageLists + " meanwhile"
}
