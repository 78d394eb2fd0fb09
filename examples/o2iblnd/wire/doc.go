// Package wire is the wire format of o2iblnd, the driver of Lustre's network layer LNet for RDMA
// (ko2iblnd). It encodes and decodes messages and does no I/O.
//
// # Layers
//
// A [Message] is one SEND of at most [MaxMessage] bytes, or the private data of a connection
// request (CONNREQ) or of its answer (CONNACK). IMMEDIATE, PUT_REQ and GET_REQ contain an
// [LNetHeader]; the payload behind it is LNet's, for instance [PingInfo]. A [Reject] is the private
// data of a refused connection.
//
// # Byte order
//
// A sender uses its own byte order, and the receiver detects it by the magic number. Decode stores it
// in Message.Order, and Append encodes in that order. The LNet header is always little-endian.
// A [Cookie] and a [WireMD] are opaque: the receiver returns them unchanged.
//
// # Contract
//
// Decoding never panics and never allocates for more fragments than the message has. Payloads are
// slices of the decoded bytes. Every failure is an *[Error]. A message that Decode accepts encodes
// to the same bytes, apart from bytes behind the message and from fields that a type does not use.
package wire
