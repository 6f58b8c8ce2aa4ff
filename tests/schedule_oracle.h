/* tests/schedule_oracle.h - a slow, obvious second answer about compute lists.
 *
 * Runs a compute list by sweeping over all ranks again and again; an op runs when the list says so
 * and what it needs has ended. No work lists, no buffers, no cleverness. */
#ifndef ELAPSE_TESTS_SCHEDULE_ORACLE_H
#define ELAPSE_TESTS_SCHEDULE_ORACLE_H

#include <stdbool.h>
#include <stdlib.h>

#include "partition/schedule.h"

struct oracle_times {
    int64_t f, b, i, w; /* the same for all stages */
};

struct oracle_result {
    bool complete;     /* every op ran and every pair got what it needs, once */
    int64_t step;      /* end of the last op */
    int64_t span_idle; /* largest idle time within a rank's own first start .. last end */
    int64_t idle;      /* of all ranks, over the step */
};

static inline struct oracle_result oracle_run(const struct schedule *list,
                                              struct oracle_times times)
{
    const int K = list->num_ranks, S = list->num_stages, M = list->num_microbatches;
    const size_t cells = (size_t)S * (size_t)M;
    /* End of the forward, the input half and the weight half of each pair; -1: not yet. */
    int64_t *end[3], *clock = calloc((size_t)K, sizeof *clock);
    int64_t *next = calloc((size_t)K, sizeof *next), *busy = calloc((size_t)K, sizeof *busy);
    int64_t *first = calloc((size_t)K, sizeof *first);
    int *order = calloc(2 * (size_t)S, sizeof *order); /* last micro-batch of either half */
    struct oracle_result result = {.complete = true};
    for (int half = 0; half < 3; half++) {
        end[half] = malloc(cells * sizeof(int64_t));
        for (size_t i = 0; i < cells; i++)
            end[half][i] = -1;
    }
    for (int i = 0; i < 2 * S; i++)
        order[i] = -1;
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < K; k++) {
            if (next[k] == list->ranks[k].num_ops)
                continue;
            const struct op op = list->ranks[k].ops[next[k]];
            const int s = op.stage, m = op.microbatch;
            if (s >= S || m < 0 || m >= M || list->rank_of_stage[s] != k) {
                result.complete = false;
                continue;
            }
            const size_t at = (size_t)s * (size_t)M + (size_t)m;
            const bool frozen = s < list->num_frozen_stages;
            const bool cut = list->drop_first_input && s == list->num_frozen_stages;
            int64_t need = clock[k], took = 0;
            bool may = true, twice = false;
            if (op.kind == OP_F || op.kind == OP_Z) {
                twice = end[0][at] >= 0 || frozen != (op.kind == OP_Z);
                may = s == 0 || end[0][at - (size_t)M] >= 0;
                need =
                    s > 0 && may && end[0][at - (size_t)M] > need ? end[0][at - (size_t)M] : need;
                took = times.f;
            } else {
                const bool input = op.kind == OP_B || op.kind == OP_I;
                const bool weight = op.kind == OP_B || op.kind == OP_W;
                const bool above = input || (cut && weight);
                twice = frozen || (!input && !weight) || (cut && op.kind == OP_I) ||
                        (input && !cut && (end[1][at] >= 0 || order[2 * s] > m)) ||
                        (weight && (end[2][at] >= 0 || order[2 * s + 1] > m));
                may = end[0][at] >= 0 && (input || cut || end[1][at] >= 0);
                if (above && s + 1 < S) {
                    may = may && end[1][at + (size_t)M] >= 0;
                    need = may && end[1][at + (size_t)M] > need ? end[1][at + (size_t)M] : need;
                }
                took = op.kind == OP_B ? times.b : input ? times.i : times.w;
            }
            if (twice) {
                result.complete = false;
                break;
            }
            if (!may)
                continue;
            first[k] = next[k] == 0 ? need : first[k];
            clock[k] = need + took;
            busy[k] += took;
            next[k]++;
            moved = true;
            if (op.kind == OP_F || op.kind == OP_Z) {
                end[0][at] = clock[k];
            } else {
                if (op.kind != OP_W) {
                    end[1][at] = clock[k];
                    order[2 * s] = m;
                }
                if (op.kind != OP_I) {
                    end[2][at] = clock[k];
                    order[2 * s + 1] = m;
                }
            }
        }
        if (!result.complete)
            break;
    }
    for (int k = 0; k < K; k++) {
        result.complete = result.complete && next[k] == list->ranks[k].num_ops;
        result.step = clock[k] > result.step ? clock[k] : result.step;
        const int64_t idle = clock[k] - first[k] - busy[k];
        result.span_idle = idle > result.span_idle ? idle : result.span_idle;
    }
    for (int k = 0; k < K; k++)
        result.idle += result.step - busy[k];
    for (size_t i = 0; i < cells; i++) {
        const int s = (int)(i / (size_t)M);
        const bool frozen = s < list->num_frozen_stages;
        const bool cut = list->drop_first_input && s == list->num_frozen_stages;
        result.complete = result.complete && end[0][i] >= 0 &&
                          (frozen || (end[2][i] >= 0 && (cut || end[1][i] >= 0)));
    }
    for (int half = 0; half < 3; half++)
        free(end[half]);
    free(clock);
    free(next);
    free(busy);
    free(first);
    free(order);
    return result;
}

#endif
