/* exit.h: what happens when the process ends. */
#ifndef ROCE_EXIT_H
#define ROCE_EXIT_H

/* roce_report_at_exit arranges that roceExit is called when the process ends. It returns 0, or not 0 if it fails. */
int roce_report_at_exit(void);

/* roce_watch_exit starts the thread that roce_exiting needs. */
void roce_watch_exit(void);

/* roce_exiting calls roceExiting in another thread. A signal handler that interrupts the engine may call it, as it
 * may call exit. */
void roce_exiting(void);

#endif
