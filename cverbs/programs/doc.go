// Package programs runs programs of the distribution, unchanged, on libibverbs.so.1 and librdmacm.so.1 of this
// module. It has only tests.
//
//	lab_test.go       hosts: network namespaces joined by veth pairs
//	pyverbs_test.go   rdma-core's own test suite
//	pairs_test.go     programs with a server and a client: a table
//	manuals_test.go   teaching examples, printed in manuals: a table
//	examples_test.go  the examples of this module in Go, against those in C: a table
//	rspreload_test.go programs for TCP and UDP with librspreload in front of sockets
//	mpi_test.go       OpenMPI, several ranks on each of two hosts
//
// They need Linux, root and the Debian packages of packages.txt.
package programs
