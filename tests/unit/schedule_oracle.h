/* tests/unit/schedule_oracle.h - a slow, obvious second answer about compute lists.
 *
 * Runs a compute list by sweeping over all ranks again and again; an op runs when the list says so
 * and what it needs has ended. No work lists, no buffers, no cleverness. */
#pragma once

#include <stdbool.h>
#include <stdlib.h>

#include "partition/schedule/schedule.h"

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
            const struct op *ops = &list->ranks[k].ops[next[k]];
            /* An F and a B that overlap are one op: all that either needs before both. */
            const int n = op_overlapped(ops[0], OP_F) ? 2 : 1;
            int64_t need = clock[k], took = 0;
            bool may = true, wrong = false;
            for (int i = 0; i < n && !wrong; i++) {
                const int s = ops[i].stage, m = ops[i].microbatch;
                wrong = s >= S || m < 0 || m >= M || list->rank_of_stage[s] != k;
                if (wrong)
                    break;
                const size_t at = (size_t)s * (size_t)M + (size_t)m;
                const bool frozen = s < list->num_frozen_stages;
                const bool cut = list->drop_first_input && s == list->num_frozen_stages;
                const bool starts = s == 0;
                const bool ends = s == S - 1;
                const uint8_t kind = ops[i].kind;
                if (kind == OP_F || kind == OP_Z) {
                    wrong = end[0][at] >= 0 || frozen != (kind == OP_Z);
                    if (!starts) {
                        may = may && end[0][at - (size_t)M] >= 0;
                        need = end[0][at - (size_t)M] > need ? end[0][at - (size_t)M] : need;
                    }
                    took += times.f;
                    continue;
                }
                const bool input = kind == OP_B || kind == OP_I;
                const bool weight = kind == OP_B || kind == OP_W;
                wrong = frozen || (!input && !weight) || (cut && kind == OP_I) ||
                        (input && !cut && (end[1][at] >= 0 || order[2 * s] > m)) ||
                        (weight && (end[2][at] >= 0 || order[2 * s + 1] > m));
                may = may && end[0][at] >= 0 && (input || cut || end[1][at] >= 0);
                if ((input || (cut && weight)) && !ends) {
                    may = may && end[1][at + (size_t)M] >= 0;
                    need = end[1][at + (size_t)M] > need ? end[1][at + (size_t)M] : need;
                }
                took += kind == OP_B ? times.b : input ? times.i : times.w;
            }
            if (wrong) {
                result.complete = false;
                break;
            }
            if (!may)
                continue;
            first[k] = next[k] == 0 ? need : first[k];
            clock[k] = need + took;
            busy[k] += took;
            next[k] += n;
            moved = true;
            for (int i = 0; i < n; i++) {
                const int s = ops[i].stage, m = ops[i].microbatch;
                const size_t at = (size_t)s * (size_t)M + (size_t)m;
                if (ops[i].kind == OP_F || ops[i].kind == OP_Z) {
                    end[0][at] = clock[k];
                    continue;
                }
                if (ops[i].kind != OP_W) {
                    end[1][at] = clock[k];
                    order[2 * s] = m;
                }
                if (ops[i].kind != OP_I) {
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
