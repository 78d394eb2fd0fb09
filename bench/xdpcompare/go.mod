module github.com/goroce/roce/bench/xdpcompare

go 1.26.0

require (
	github.com/asavie/xdp v0.3.3
	github.com/goroce/roce v0.0.0
	golang.org/x/sys v0.49.0
)

require golang.org/x/net v0.62.0 // indirect

require (
	github.com/cilium/ebpf v0.22.0
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
)

replace github.com/goroce/roce => ../..
