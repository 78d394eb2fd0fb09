/* exit.h: what happens when the process ends. */
#ifndef ROCE_EXIT_H
#define ROCE_EXIT_H

/* roce_report_at_exit has roceExit called when the process ends, or returns not 0. */
int roce_report_at_exit(void);

/* roce_watch_exit makes what roce_exiting needs. */
void roce_watch_exit(void);

/* roce_exiting has roceExiting called. It may be called by a signal handler that interrupts the engine, as
 * exit may. */
void roce_exiting(void);

#endif
