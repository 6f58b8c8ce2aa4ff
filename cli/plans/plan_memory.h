/* cli/plans/plan_memory.h - the memory of the fullest device of a plan, part by part, and what an
 * optimizer on the host would save there and cost. */
#pragma once

#include "partition/cost/cost.h"
#include "partition/plan/plan.h"
#include "partition/step/schedule_memory.h"
#include "profiles/json/json.h"

/* A plan is safe if each of its devices keeps `memory` of its memory free, because a peak that is
 * predicted within a few per cent may be exceeded. A safe plan is preferred to one that is faster
 * by no more than `nearly`. Both are larger where the memory is that of a framework
 * (framework_memory_doubt()). */
struct plan_margin {
    double memory, nearly;
};
/* headroom: job_headroom(), in place of `memory` where it is not negative. */
struct plan_margin plan_margin_of(double headroom, const struct model *model,
                                  const struct cost *cost);

struct plan_memory {
    struct rank_memory *ranks; /* owned; of each rank of a pipeline */
    int num_ranks;
    int rank;            /* the one with the least left; of equal ones the first */
    int64_t peak_bytes;  /* of it */
    int64_t limit_bytes; /* of the smallest of its devices; INT64_MAX: not limited */
    struct memory_parts parts;
    int64_t host_bytes; /* that the rank's device would hold without layout.offload; 0: none */
    int64_t update_ns, device_update_ns; /* with layout.offload: the longest UPDATE of a rank, and
                                            that of the same plan without */
    struct plan_margin margin;
};

void plan_memory_clear(struct plan_memory *memory);

/* Lower a plan and find it. *memory must be zeroed or found before; the caller clears it.
 * O(ops + ranks * stages). */
enum status plan_memory_find(const struct setting *setting, const struct plan *plan,
                             struct plan_memory *memory, struct err *err);
/* Append memory {part: bytes}, memory_rank, where it is limited memory_limit_bytes, memory_ranks[]
 * and memory_headroom, memory_tight, with the parts of each rank at its peak, and where the
 * optimizer is on the host host_bytes, update_ns and device_update_ns. */
void plan_memory_add(struct json *json, const struct plan_memory *memory);
/* "needs 113 GiB, a device has 40.0 GiB: weights 25.1 GiB, ...". Returns text. */
const char *plan_memory_needs(const struct plan_memory *memory, char *text, size_t size);
/* Whether less is left than the headroom. */
bool plan_memory_tight(int64_t peak_bytes, int64_t limit_bytes, double headroom);
/* Print "tight: 4.86 MiB of 80.0 GiB are left, the headroom is 6.40 GiB" and return true where less
 * is left than the headroom. */
bool plan_memory_print_tight(int64_t peak_bytes, int64_t limit_bytes, double headroom);
/* Print a line where memory is limited, and one where the optimizer is on the host. */
void plan_memory_print(const struct plan_memory *memory);
