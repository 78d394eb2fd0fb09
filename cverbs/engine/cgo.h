/* cgo.h: names for pointers to const: without them cgo cannot export functions with such arguments. */
#ifndef ROCE_CGO_H
#define ROCE_CGO_H

#include "engine.h"

typedef const char const_char;
typedef const uint8_t const_uint8;
typedef const struct roce_rereg const_rereg;
typedef const struct roce_send_wr const_send_wr;
typedef const struct roce_recv_wr const_recv_wr;
typedef const struct roce_ah_attr const_ah_attr;

#endif
