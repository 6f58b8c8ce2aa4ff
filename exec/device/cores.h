/* exec/device/cores.h - which cores a rank runs on, and with how many threads. */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

#include "partition/base/status.h"

struct cores {
    int at_hand;    /* cores that this process may use before binding */
    int first, num; /* its share of them: [first, first + num) */
    int threads;
    char list[128]; /* the bound cores, "0,1", for the record */
    cpu_set_t all;  /* the available cores */
};

/* Divide the available cores among the ranks of this machine, in order, and bind the calling thread
 * (threads made later inherit it). If there are more ranks than cores, ranks share them. threads 0:
 * one for each core of the share; else that many. Open MPI must not have bound the process before
 * (mpirun --bind-to none). ERR_SYSTEM if the system refuses. */
enum status cores_bind(int local_rank, int local_size, int threads, struct cores *cores,
                       struct err *err);

/* Note on `out` that the ranks of this machine are more than its available cores, if they are. */
void cores_report(const struct cores *cores, int local_size, FILE *out);

/* The number of threads that may run during the rank's own work: the cores of its share that do
 * not compute, or, if a device computes (on_device), that do not launch work; at least 1. */
int cores_beside(const struct cores *cores, bool on_device);

/* Give the calling thread all available cores again. */
enum status cores_release(const struct cores *cores, struct err *err);
