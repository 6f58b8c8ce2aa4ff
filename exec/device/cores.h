/* exec/device/cores.h - which cores a rank runs on, and with how many threads. */
#ifndef ELAPSE_EXEC_DEVICE_CORES_H
#define ELAPSE_EXEC_DEVICE_CORES_H

#include <sched.h>
#include <stdbool.h>

#include "partition/status.h"

struct cores {
    int at_hand;    /* cores that this process may use, before binding */
    int first, num; /* its share: `num` of them, beginning with the first-th */
    int threads;
    char list[128]; /* "0,1": as bound, for the record */
    cpu_set_t all;  /* what was at hand */
};

/* Share out the cores at hand among the ranks of this machine, in order, and bind the calling
 * thread (threads made later inherit it). Ranks beyond the cores share them. threads 0: one a core
 * of the share; else that many. Open MPI must not have bound already (mpirun --bind-to none).
 * ERR_SYSTEM when the system refuses. */
enum status cores_bind(int local_rank, int local_size, int threads, struct cores *cores,
                       struct err *err);

/* Threads beside the work of a rank's own: as many as its share has cores that neither compute nor,
 * where a device does (on_device), issue; at least 1. */
int cores_beside(const struct cores *cores, bool on_device);

/* Give the calling thread all cores at hand again. */
enum status cores_release(const struct cores *cores, struct err *err);

#endif
