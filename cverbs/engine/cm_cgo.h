/* cm_cgo.h: names for pointers to const of cm.h; see cgo.h. */
#ifndef ROCE_CM_CGO_H
#define ROCE_CM_CGO_H

#include "cm.h"

typedef const struct roce_cm_addr const_cm_addr;
typedef const struct roce_cm_param const_cm_param;

/* cm_table.c */
extern const struct roce_cm_engine roce_cm_table;

#endif
