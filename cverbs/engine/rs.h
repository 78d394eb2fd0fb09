/* rs.h: the calls of the engine's rsockets for librdmacm.so.1.
 *
 * An rsocket is a stream or a listener, or a datagram rsocket: there is a table for each. The rules of engine.h
 * apply, but an invalid handle gives -EBADF. Only shutdown, close and map wait for a peer; other calls return
 * -EAGAIN instead.
 *
 * For each socket librdmacm gives the engine two eventfds (EFD_NONBLOCK), which librdmacm owns. in is readable
  * while there may be something to read or to accept; out while there may be room to write, or the
  * outcome of connect. A call that returns -EAGAIN makes the descriptor of its direction unreadable. After
  * close has returned both are readable, and the engine does not touch them any more.
 *
 * A datagram rsocket also has a UDP socket, which librdmacm binds and connects. create takes a duplicate of its
 * descriptor, and closes it also if it fails; close closes it.
 */
#ifndef ROCE_RS_H
#define ROCE_RS_H

#include "cm.h"

/* Options. As with sockets, a size that is too small or too large is changed to the limit. */
enum roce_rs_option {
	ROCE_RS_SNDBUF,
	ROCE_RS_RCVBUF,
	ROCE_RS_SQSIZE, /* this and the next two: only before connecting */
	ROCE_RS_RQSIZE,
	ROCE_RS_IOMAPSIZE,
	ROCE_RS_REUSEADDR,
	ROCE_RS_V6ONLY,
	ROCE_RS_KEEPALIVE,
	ROCE_RS_KEEPIDLE, /* seconds */
	ROCE_RS_TOS,
	ROCE_RS_MAXSEG,   /* read-only */
	ROCE_RS_ERROR,    /* read-only; reading clears it */
	ROCE_RS_DROPS,    /* read-only; of a datagram rsocket, which has the first four, too */
};

/* The table of datagram rsockets has create, connect, shutdown, close, ready, the options and the calls for datagrams;
 * the others are NULL there, and the calls for datagrams are NULL in the table of streams. */
struct roce_rs_engine {
	uint32_t size;

	int (*create)(uint32_t family, int in, int out, int udp, roce_handle *rs); /* 4 or 6; udp -1: a stream */
	int (*bind)(roce_handle rs, const struct roce_cm_addr *addr);
	int (*listen)(roce_handle rs, int backlog);
	int (*accept)(roce_handle rs, int in, int out, roce_handle *child);
	/* A stream: starts and returns -EINPROGRESS. A datagram rsocket: before librdmacm connects the UDP socket; NULL
	 * dissolves the association. */
	int (*connect)(roce_handle rs, const struct roce_cm_addr *addr);
	int (*shutdown)(roce_handle rs, int how);
	int (*close)(roce_handle rs);

	/* These return the number of bytes. If peek is set, recv leaves them in the stream. */
	int64_t (*recv)(roce_handle rs, void *buf, uint64_t length, int peek);
	int64_t (*send)(roce_handle rs, const void *buf, uint64_t length);
	int64_t (*write_at)(roce_handle rs, const void *buf, uint64_t length, int64_t offset);

	/* Returns events of poll(2): POLLIN and POLLOUT only if events has them. If a requested event is missing, in
	 * or out is unreadable. */
	int (*ready)(roce_handle rs, uint32_t events);

	int (*name)(roce_handle rs, struct roce_cm_addr *out);
	int (*peer)(roce_handle rs, struct roce_cm_addr *out);
	int (*set_option)(roce_handle rs, uint32_t option, int64_t value);
	int (*get_option)(roce_handle rs, uint32_t option, int64_t *value);

	/* Memory that the peer writes to by offset, if writable is set; otherwise the engine only notes it.
	 * *offset -1: the offset is the address. */
	int (*map)(roce_handle rs, void *buf, uint64_t length, int writable, int64_t *offset);
	int (*unmap)(roce_handle rs, void *buf);

	/* Datagrams. to NULL: the peer of connect. recv_from returns the length of the datagram, which may be longer
	 * than buf. */
	int64_t (*send_to)(roce_handle rs, const void *buf, uint64_t length, const struct roce_cm_addr *to);
	int64_t (*recv_from)(roce_handle rs, void *buf, uint64_t length, int peek, struct roce_cm_addr *from);
};

#endif
