/* rs.h: what librdmacm.so.1 asks of the rsockets of the engine.
 *
 * An rsocket is a stream or a listener. The rules of engine.h apply, but a handle that is none is -EBADF.
 * Calls do not wait for a peer, except shutdown, close and map: what would wait is -EAGAIN.
 *
 * Of each socket the engine is given two eventfds (EFD_NONBLOCK), which stay librdmacm's. in is readable
 * while there may be something to read or to accept, out while there may be room to write, or the
 * outcome of connect. A call that returns -EAGAIN has made the one that it is about unreadable. Both are
 * readable once close has returned, and the engine does not touch them any more.
 */
#ifndef ROCE_RS_H
#define ROCE_RS_H

#include "cm.h"

/* Options. Sizes are what sockets say they are: a value that is too small or too large is changed. */
enum roce_rs_option {
	ROCE_RS_SNDBUF,
	ROCE_RS_RCVBUF,
	ROCE_RS_SQSIZE, /* this and the next two only before connecting */
	ROCE_RS_RQSIZE,
	ROCE_RS_IOMAPSIZE,
	ROCE_RS_REUSEADDR,
	ROCE_RS_V6ONLY,
	ROCE_RS_KEEPALIVE,
	ROCE_RS_KEEPIDLE, /* seconds */
	ROCE_RS_MAXSEG,   /* can only be asked for */
	ROCE_RS_ERROR,    /* as well; asking for it clears it */
};

struct roce_rs_engine {
	uint32_t size;

	int (*create)(uint32_t family, int in, int out, roce_handle *rs); /* 4 or 6 */
	int (*bind)(roce_handle rs, const struct roce_cm_addr *addr);
	int (*listen)(roce_handle rs, int backlog);
	int (*accept)(roce_handle rs, int in, int out, roce_handle *child);
	int (*connect)(roce_handle rs, const struct roce_cm_addr *addr); /* begins: -EINPROGRESS */
	int (*shutdown)(roce_handle rs, int how);
	int (*close)(roce_handle rs);

	/* These return how many bytes. recv leaves them there if peek is set. */
	int64_t (*recv)(roce_handle rs, void *buf, uint64_t length, int peek);
	int64_t (*send)(roce_handle rs, const void *buf, uint64_t length);
	int64_t (*write_at)(roce_handle rs, const void *buf, uint64_t length, int64_t offset);

	/* Events of poll(2), of POLLIN and POLLOUT those that are asked for. in, or out, is unreadable if
	 * the event that was asked for is not there. */
	int (*ready)(roce_handle rs, uint32_t events);

	int (*name)(roce_handle rs, struct roce_cm_addr *out);
	int (*peer)(roce_handle rs, struct roce_cm_addr *out);
	int (*set_option)(roce_handle rs, uint32_t option, int64_t value);
	int (*get_option)(roce_handle rs, uint32_t option, int64_t *value);

	/* Memory that the peer writes to by offset, if writable is set; otherwise it is only remembered.
	 * *offset -1: the address is taken. */
	int (*map)(roce_handle rs, void *buf, uint64_t length, int writable, int64_t *offset);
	int (*unmap)(roce_handle rs, void *buf);
};

#endif
