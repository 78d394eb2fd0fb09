/* exit.h: what happens when the process ends. */
#ifndef ROCE_EXIT_H
#define ROCE_EXIT_H

/* roce_report_at_exit has roceExit called when the process ends, or returns not 0. */
int roce_report_at_exit(void);

#endif
