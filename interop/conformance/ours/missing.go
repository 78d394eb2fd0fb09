//go:build linux

package ours

import "github.com/goroce/roce/interop/conformance/verbs"

func (n *Node) AllocDM(uint64) (verbs.Handle, error) { return 0, notOffered("alloc_dm") }
