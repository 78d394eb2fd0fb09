// Package xdpcompare compares the rings of this module with those of github.com/asavie/xdp; see README.md. It has only
// benchmarks.
package xdpcompare
