/* threads.h: how many threads of the program use the engine. */
#ifndef ROCE_THREADS_H
#define ROCE_THREADS_H

/* roce_thread_polls counts the calling thread as polling until it ends. */
void roce_thread_polls(void);

#endif
