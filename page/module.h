/* page/module.h - included before every file of the page's module. */
#pragma once

#include <stddef.h>

/* The commands that start no other program and look after no files. */
#define COMMANDS(ROW)                                                                              \
    ROW(model) ROW(balance) ROW(freeze) ROW(schedule) ROW(plan) ROW(sim) ROW(devices) ROW(cluster)

/* As glibc has it; emscripten's C library lacks it. Not for several threads. */
void qsort_r(void *base, size_t num, size_t size,
             int (*compare)(const void *, const void *, void *), void *ctx);
