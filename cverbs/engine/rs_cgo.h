/* rs_cgo.h: the table of rs.h; see cgo.h. */
#ifndef ROCE_RS_CGO_H
#define ROCE_RS_CGO_H

#include "cm_cgo.h"
#include "rs.h"

/* rs_table.c */
extern const struct roce_rs_engine roce_rs_table, roce_ds_table;

#endif
