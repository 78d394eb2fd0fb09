/* engine.c: the engine is that of libibverbs.so.1, which loads it, and another one after a fork. */
#include "cma.h"

#include "../engine/engine.h"

/* Of libibverbs.so.1, version node ROCE_PRIVATE_1. */
__attribute__((visibility("default"))) const struct roce_engine *roce_load_engine(void);

const struct roce_cm_engine *cma_engine(void)
{
	const struct roce_engine *engine = roce_load_engine();

	if (!engine)
		return NULL;
	if (!engine->cm || engine->cm->size < sizeof *engine->cm) {
		errno = ENOSYS;
		return NULL;
	}
	return engine->cm;
}
