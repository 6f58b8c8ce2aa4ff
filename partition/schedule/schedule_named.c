/* The named schedules. A write_*() function writes the list of one rank and needs nothing from
 * other ranks. Read write_1f1b() first, then schedule_generate() at the end.
 *
 * K ranks, M micro-batches, rank r. F B I W as in enum op_kind; chunk c of a rank is its c-th stage
 * from the front. Sources:
 *   gpipe        Huang et al. 2019 (GPipe)
 *   1f1b         Narayanan et al. 2019 (PipeDream), flushed as in Narayanan et al. 2021
 *   interleaved  Narayanan et al. 2021 (Megatron-LM), groups of micro-batches made even for any M
 *   zb-h1, zb-h2 Qi et al. 2023 (Zero Bubble Pipeline Parallelism), handcrafted schedules
 *   zb-v         Qi et al. 2024 (Pipeline Parallelism with Controllable Memory), V-shaped
 *   dualpipe-v   DeepSeek 2025 (DualPipeV); an F and a B that overlap there follow one another here
 *   eager-1f1b   Zhuang et al. 2023 (On Optimizing the Communication of Model Parallelism)
 *   breadth-first  Lamy-Poirier 2023 (Breadth-First Pipeline Parallelism)
 *   v-half, v-min  in schedule_blocks.c
 */
#include "partition/schedule/schedule.h"

#include <stdlib.h>

#include "partition/schedule/schedule_blocks.h"

struct writer {
    struct op *next;
    int num_microbatches;
};

static inline struct op make_op(enum op_kind kind, int stage, int microbatch)
{
    return (struct op){.microbatch = microbatch, .stage = (uint16_t)stage, .kind = (uint8_t)kind};
}

static inline void emit(struct writer *to, enum op_kind kind, int stage, int microbatch)
{
    *to->next++ = make_op(kind, stage, microbatch);
}

/* For schedules that are written for a larger M: leave out micro-batches that do not exist. */
static inline void emit_if(struct writer *to, enum op_kind kind, int stage, int microbatch)
{
    if (microbatch < to->num_microbatches)
        emit(to, kind, stage, microbatch);
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* `warm` forwards, then one forward and one backward in turn. 1f1b has K-1-r of them. eager-1f1b
 * has twice as many, so that a forward is computed before its gradient's round trip to the last
 * rank needs it: messages travel while ranks compute, for 2 (K - r) - 1 micro-batches in flight. */
static void write_1f1b(struct writer *to, int r, int warm)
{
    const int M = to->num_microbatches;
    warm = min_int(M, warm);
    for (int m = 0; m < warm; m++)
        emit(to, OP_F, r, m);
    for (int m = 0; m < M; m++) {
        if (m + warm < M)
            emit(to, OP_F, r, m + warm);
        emit(to, OP_B, r, m);
    }
}

/* 1F1B with the backward split. W follows its I with a delay of `delay` further I's. With warm =
 * K-1-r and delay = r the memory is that of 1F1B (zb-h1). With warm = 2(K-1-r) and delay = 2r the
 * W's fill the bubble, and 2K-1 micro-batches are in flight (zb-h2). */
static void write_zb_h(struct writer *to, int r, int warm, int delay)
{
    const int M = to->num_microbatches;
    warm = min_int(M, warm);
    for (int m = 0; m < warm; m++)
        emit(to, OP_F, r, m);
    for (int m = 0; m < M; m++) {
        if (m + warm < M)
            emit(to, OP_F, r, m + warm);
        emit(to, OP_I, r, m);
        if (m >= delay)
            emit(to, OP_W, r, m - delay);
    }
    for (int m = M > delay ? M - delay : 0; m < M; m++)
        emit(to, OP_W, r, m);
}

/* The position of a walk over (chunk, micro-batch): group by group of micro-batches, and within a
 * group chunk by chunk. */
struct turn {
    int group_first, group_size, chunk, in_group;
};

/* Size of the group that starts at micro-batch `first`. M micro-batches form max(1, M / K) groups
 * whose sizes differ by at most one, the larger ones first. */
static int group_size(int K, int M, int first)
{
    const int groups = M / K > 1 ? M / K : 1, size = M / groups, larger = M % groups;
    return first < larger * (size + 1) ? size + 1 : size;
}

static void turn_next(struct turn *turn, int K, int M, int v)
{
    if (++turn->in_group < turn->group_size)
        return;
    turn->in_group = 0;
    if (++turn->chunk < v)
        return;
    turn->chunk = 0;
    turn->group_first += turn->group_size;
    turn->group_size = turn->group_first < M ? group_size(K, M, turn->group_first) : 0;
}

static void write_interleaved(struct writer *to, int K, int v, int r)
{
    const int M = to->num_microbatches, widest = group_size(K, M, 0);
    const int64_t total = (int64_t)M * v;
    int64_t warm = (int64_t)(v - 1) * widest + 2 * (int64_t)(K - 1 - r);
    warm = warm < total ? warm : total;
    struct turn f = {.group_size = widest}, b = {.group_size = widest};
    for (int64_t i = 0; i < total + warm; i++) {
        if (i < total) {
            emit(to, OP_F, f.chunk * K + r, f.group_first + f.in_group);
            turn_next(&f, K, M, v);
        }
        if (i >= warm) {
            emit(to, OP_B, (v - 1 - b.chunk) * K + r, b.group_first + b.in_group);
            turn_next(&b, K, M, v);
        }
    }
}

/* All micro-batches of a chunk before the next chunk, forward and backward. With one chunk this is
 * gpipe. */
static void write_breadth_first(struct writer *to, int K, int v, int r)
{
    for (int c = 0; c < v; c++)
        for (int m = 0; m < to->num_microbatches; m++)
            emit(to, OP_F, c * K + r, m);
    for (int c = v - 1; c >= 0; c--)
        for (int m = 0; m < to->num_microbatches; m++)
            emit(to, OP_B, c * K + r, m);
}

/* Micro-batches go down one arm of the V (chunk 0) and up the other (chunk 1), so the first rank
 * holds the first and the last stage. Written for at least 2K - 1 micro-batches. */
static void write_zb_v(struct writer *to, int K, int r)
{
    const int M = to->num_microbatches, full = M > 2 * K - 1 ? M : 2 * K - 1;
    const int down = r, up = 2 * K - 1 - r;
    int f0 = 0, f1 = 0, b0 = 0, b1 = 0;
    while (f0 < 2 * (K - r) - 1)
        emit_if(to, OP_F, down, f0++);
    for (int i = 0; i < r; i++) {
        emit_if(to, OP_F, up, f1++);
        emit_if(to, OP_F, down, f0++);
    }
    for (int i = 0; i < K - r; i++) {
        emit_if(to, OP_F, up, f1++);
        emit_if(to, OP_I, up, b1);
        emit_if(to, OP_W, up, b1++);
    }
    while (f1 < f0 || f0 < full) {
        if (f0 < full)
            emit_if(to, OP_F, down, f0++);
        emit_if(to, OP_I, down, b0);
        emit_if(to, OP_W, down, b0++);
        emit_if(to, OP_F, up, f1++);
        emit_if(to, OP_I, up, b1);
        emit_if(to, OP_W, up, b1++);
    }
    int w0 = b0, w1 = b1;
    for (int i = 0; i < r; i++) {
        emit_if(to, OP_I, down, b0++);
        emit_if(to, OP_I, up, b1++);
    }
    for (int i = 0; i < K - r; i++) {
        emit_if(to, OP_I, down, b0++);
        emit_if(to, OP_W, down, w0++);
    }
    while (w1 < b1)
        emit_if(to, OP_W, up, w1++);
    while (w0 < b0)
        emit_if(to, OP_W, down, w0++);
}

/* Rank r of the V: M micro-batches come to stage `down` first, turn round at rank K-1 and come back to
 * stage `up`. Needs M >= 2K. Postponed W's run first in, first out over both stages. */
static void write_dualpipe_v(struct writer *to, int K, int r)
{
    const int M = to->num_microbatches, back = K - 1 - r, down = r, up = 2 * K - 1 - r;
    int f0 = 0, f1 = 0, b0 = 0, b1 = 0;
    struct op *put_off = NULL; /* the oldest I in the list whose W has not run */
    while (f0 < 2 * back)
        emit(to, OP_F, down, f0++);
    for (int i = 0; i < r + 1; i++) {
        emit(to, OP_F, down, f0++);
        emit(to, OP_F, up, f1++);
    }
    for (int i = 0; i < back; i++) {
        emit(to, OP_I, up, b1);
        emit(to, OP_W, up, b1++);
        emit(to, OP_F, up, f1++);
    }
    for (int i = 0; i < M - 2 * K + r + 1; i++) {
        emit(to, OP_F, down, f0++);
        emit(to, OP_B, up, b1++);
        emit(to, OP_F, up, f1++);
        emit(to, OP_B, down, b0++);
    }
    for (int i = 0; i < back; i++) {
        emit(to, OP_B, up, b1++);
        emit(to, OP_F, up, f1++);
        emit(to, OP_B, down, b0++);
    }
    put_off = to->next;
    /* r + 1 pairs of backwards. The second half of them is split into I and W. */
    for (int i = 0; i < 2 * (r + 1); i++) {
        const enum op_kind kind = i < r + 1 ? OP_B : OP_I;
        if (i % 2 == 0)
            emit(to, kind, up, b1++);
        else
            emit(to, kind, down, b0++);
    }
    for (int i = 0; i < back + r + 1; i++) {
        while (put_off->kind != OP_I)
            put_off++;
        emit(to, OP_W, put_off->stage, put_off->microbatch);
        put_off++;
        if (i < back)
            emit(to, OP_I, down, b0++);
    }
}

/* Refuse bad counts before anything is allocated. Sets *num_stages and *per_rank on OK. */
static enum status check_counts(enum schedule_kind kind, int K, int M, int v, int *num_stages,
                                int64_t *per_rank, struct err *err)
{
    const char *name = schedule_kind_name(kind);
    if (kind >= SCHEDULE_SEARCH)
        return err_set(err, ERR_INPUT, "schedule '%s' has no generator", name);
    if (K < 1 || K > SCHEDULE_MAX_STAGES) {
        return err_set(err, ERR_INPUT, "schedule '%s': stages must be 1..%d, got %d", name,
                       SCHEDULE_MAX_STAGES, K);
    }
    if (M < 1) {
        return err_set(err, ERR_INPUT, "schedule '%s': microbatches must be at least 1, got %d",
                       name, M);
    }
    if (!schedule_any_chunks(kind) && v != schedule_default_chunks(kind)) {
        return err_set(err, ERR_INPUT, "schedule '%s': chunks must be %d, got %d", name,
                       schedule_default_chunks(kind), v);
    }
    if (v < 1 || v > SCHEDULE_MAX_STAGES / K) {
        return err_set(err, ERR_INPUT, "schedule '%s': chunks must be 1..%d for %d ranks, got %d",
                       name, SCHEDULE_MAX_STAGES / K, K, v);
    }
    *num_stages = K * v;
    *per_rank = (int64_t)M * v * (schedule_splits(kind) ? 3 : 2);
    if (*per_rank > SCHEDULE_MAX_OPS / K) {
        return err_set(err, ERR_INPUT,
                       "schedule '%s' with %d stages and %d microbatches: more than %lld ops", name,
                       *num_stages, M, (long long)SCHEDULE_MAX_OPS);
    }
    if (kind == SCHEDULE_DUALPIPE_V && M < 2 * K) {
        return err_set(err, ERR_INFEASIBLE,
                       "schedule 'dualpipe-v' on %d ranks needs at least %d microbatches, got %d",
                       K, 2 * K, M);
    }
    return OK;
}

/* Write the list of rank r. v-half and v-min are written for all ranks together. */
static void write_rank(struct writer *to, enum schedule_kind kind, int K, int v, int r)
{
    switch (kind) {
    case SCHEDULE_GPIPE:
    case SCHEDULE_BREADTH_FIRST:
        write_breadth_first(to, K, v, r);
        break;
    case SCHEDULE_INTERLEAVED:
        if (v > 1)
            write_interleaved(to, K, v, r);
        else
            write_1f1b(to, r, K - 1 - r);
        break;
    case SCHEDULE_1F1B:
        write_1f1b(to, r, K - 1 - r);
        break;
    case SCHEDULE_EAGER_1F1B:
        write_1f1b(to, r, 2 * (K - 1 - r));
        break;
    case SCHEDULE_ZB_H1:
        write_zb_h(to, r, K - 1 - r, r);
        break;
    case SCHEDULE_ZB_H2:
        write_zb_h(to, r, 2 * (K - 1 - r), 2 * r);
        break;
    case SCHEDULE_ZB_V:
        write_zb_v(to, K, r);
        break;
    case SCHEDULE_DUALPIPE_V:
        write_dualpipe_v(to, K, r);
        break;
    case SCHEDULE_V_HALF:
    case SCHEDULE_V_MIN:
    case SCHEDULE_SEARCH:
    case SCHEDULE_CUSTOM:
    case SCHEDULE_KIND_COUNT:
        break;
    }
}

enum status schedule_generate(enum schedule_kind kind, int num_ranks, int num_microbatches,
                              int chunks, struct schedule *schedule, struct err *err)
{
    int num_stages = 0;
    int64_t per_rank = 0;
    enum status rc =
        check_counts(kind, num_ranks, num_microbatches, chunks, &num_stages, &per_rank, err);
    if (rc != OK)
        return rc;
    int64_t *room = malloc((size_t)num_ranks * sizeof *room);
    if (!room)
        return err_nomem(err);
    for (int k = 0; k < num_ranks; k++)
        room[k] = per_rank;
    struct schedule got = {0};
    rc = schedule_alloc(kind, num_ranks, num_stages, num_microbatches, room, &got, err);
    free(room);
    if (rc != OK)
        return rc;
    for (int s = 0; s < num_stages; s++)
        got.rank_of_stage[s] = schedule_rank_of_stage(kind, num_ranks, s);
    for (int r = 0; r < num_ranks; r++) {
        struct writer to = {.next = got.ranks[r].ops, .num_microbatches = num_microbatches};
        write_rank(&to, kind, num_ranks, chunks, r);
        got.ranks[r].num_ops = to.next - got.ranks[r].ops;
    }
    if (kind == SCHEDULE_V_HALF || kind == SCHEDULE_V_MIN)
        rc = schedule_write_blocks(&got, err);
    if (rc == OK) {
        *schedule = got;
        got = (struct schedule){0};
    }
    schedule_clear(&got);
    return rc;
}
