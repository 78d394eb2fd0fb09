// Package xdpcompare measures the rings of this module against those of
// github.com/asavie/xdp; see README.md. There is nothing in it but benchmarks.
package xdpcompare
