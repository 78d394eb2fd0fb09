// Package sharing proves that processes share an address as they would share a network card.
// Its tests start many processes of this program, and kill and stop some of them, while others
// transfer data, listen and connect.
//
//   - Over UDP sockets on loopback addresses the tests need no privilege.
//   - In network namespaces (root) they are the same tests on interfaces.
//
// By default each test is short. With -sharing.long the tests have the number of processes,
// the repetitions and the time that found faults.
package sharing
