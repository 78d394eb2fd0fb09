// Package sharing tests that processes can share an address as they share a network card.
// Its tests start many processes of this program, and kill and stop some of them, while others
// transfer data, listen and connect.
//
//   - Over UDP sockets on loopback addresses the tests need no privilege.
//   - As root the same tests run on interfaces in network namespaces, too.
//
// By default each test is short. With -sharing.long the tests use more processes,
// more repetitions and more time.
package sharing
