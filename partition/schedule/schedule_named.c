/* The named schedules: one row of traits[] each. A write_*() function writes the list of one rank
 * and needs nothing from other ranks. Read write_1f1b() first, then traits[] and
 * schedule_generate() at the end.
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
 *   looped-bfs   PyTorch 2.15, ScheduleLoopedBFS
 *   v-half, v-min  in schedule_blocks.c
 */
#include "partition/schedule/schedule.h"

#include <stdlib.h>

#include "partition/schedule/schedule_blocks.h"

/* The list of rank r of K, with v chunks, for M micro-batches. */
struct writer {
    struct op *next;
    int K, M, v, r;
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
    if (microbatch < to->M)
        emit(to, kind, stage, microbatch);
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* `warm` forwards, then one forward and one backward in turn. delay >= 0: the backward is split, and W
 * follows its I with a delay of that many further I's. */
enum { WHOLE = -1 };
static void write_in_turn(struct writer *to, int warm, int delay)
{
    const int M = to->M, r = to->r;
    warm = min_int(M, warm);
    for (int m = 0; m < warm; m++)
        emit(to, OP_F, r, m);
    for (int m = 0; m < M; m++) {
        if (m + warm < M)
            emit(to, OP_F, r, m + warm);
        emit(to, delay < 0 ? OP_B : OP_I, r, m);
        if (delay >= 0 && m >= delay)
            emit(to, OP_W, r, m - delay);
    }
    for (int m = M > delay ? M - delay : 0; delay >= 0 && m < M; m++)
        emit(to, OP_W, r, m);
}

static void write_1f1b(struct writer *to)
{
    write_in_turn(to, to->K - 1 - to->r, WHOLE);
}

/* Twice the forwards of 1f1b before the first backward, so that a forward is computed before its
 * gradient's round trip to the last rank needs it: messages travel while ranks compute, for
 * 2 (K - r) - 1 micro-batches in flight. */
static void write_eager_1f1b(struct writer *to)
{
    write_in_turn(to, 2 * (to->K - 1 - to->r), WHOLE);
}

/* 1F1B with the backward split, and its memory. */
static void write_zb_h1(struct writer *to)
{
    write_in_turn(to, to->K - 1 - to->r, to->r);
}

/* The W's fill the bubble, and 2K - 1 micro-batches are in flight. */
static void write_zb_h2(struct writer *to)
{
    write_in_turn(to, 2 * (to->K - 1 - to->r), 2 * to->r);
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

static void write_interleaved(struct writer *to)
{
    const int K = to->K, M = to->M, v = to->v, r = to->r, widest = group_size(K, M, 0);
    if (v == 1) {
        write_1f1b(to);
        return;
    }
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
static void write_breadth(struct writer *to, bool descends)
{
    for (int c = 0; c < to->v; c++)
        for (int m = 0; m < to->M; m++)
            emit(to, OP_F, c * to->K + to->r, descends ? to->M - 1 - m : m);
    for (int c = to->v - 1; c >= 0; c--)
        for (int m = 0; m < to->M; m++)
            emit(to, OP_B, c * to->K + to->r, m);
}

static void write_breadth_first(struct writer *to)
{
    write_breadth(to, false);
}

/* PyTorch's LoopedBFS runs the backwards of a stage from the last micro-batch to the first. Our
 * backwards ascend, so micro-batches count from the other end: forwards descend instead. */
static void write_looped_bfs(struct writer *to)
{
    write_breadth(to, true);
}

/* Micro-batches go down one arm of the V (chunk 0) and up the other (chunk 1), so the first rank
 * holds the first and the last stage. Written for at least 2K - 1 micro-batches. */
static void write_zb_v(struct writer *to)
{
    const int K = to->K, M = to->M, r = to->r, full = M > 2 * K - 1 ? M : 2 * K - 1;
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
static void write_dualpipe_v(struct writer *to)
{
    const int K = to->K, M = to->M, r = to->r, back = K - 1 - r, down = r, up = 2 * K - 1 - r;
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

/* A stage of a pipeline of K ranks: chunk `chunk` of the v of rank r. */
struct place {
    enum schedule_kind kind;
    int64_t K, M, v, r, chunk;
    int stage;
};

static int64_t live_all(const struct place *at)
{
    return at->M;
}

/* 1f1b and interleaved. (v - 1) groups and 2 (K - 1 - r) + 1 forwards come before the first
 * backward. The last of them are of chunk v - 1. When its group is full, the rest are of chunk 0
 * and the next group. */
static int64_t live_1f1b(const struct place *at)
{
    const int64_t K = at->K, M = at->M, v = at->v;
    if (v == 1)
        return K - at->r;
    const int64_t groups = M / K > 1 ? M / K : 1, group = (M + groups - 1) / groups;
    const int64_t warm = 2 * (K - 1 - at->r) + 1, left = M * v - (v - 1) * group;
    const int64_t more = warm < left ? warm : left;
    if (at->chunk == v - 1)
        return group < more ? group : more;
    return at->chunk == 0 && more > group ? more : group;
}

static int64_t live_eager_1f1b(const struct place *at)
{
    return 2 * (at->K - at->r) - 1;
}

/* K - 1 - r forwards come before the first I, and W follows r micro-batches late. */
static int64_t live_zb_h1(const struct place *at)
{
    return at->K;
}

static int64_t live_zb_h2(const struct place *at)
{
    return 2 * at->K - 1;
}

static int64_t live_zb_v(const struct place *at)
{
    return at->chunk == 0 ? 2 * at->K - 1 - at->r : at->r + 1;
}

/* The last rank runs one more forward before its first backward. */
static int64_t live_dualpipe_v(const struct place *at)
{
    return live_zb_v(at) + (at->chunk == 0 && at->r == at->K - 1);
}

static int64_t live_block(const struct place *at)
{
    return schedule_block_live(at->kind, (int)at->K, at->stage);
}

/* All that sets one schedule apart from another. */
static const struct traits {
    const char *about; /* for help texts */
    enum schedule_shape shape;
    bool splits;                             /* the backward is I and W */
    int64_t (*live)(const struct place *at); /* schedule_live(), if M does not limit it */
    void (*write)(struct writer *to);        /* the list of one rank; or write_all, of all */
    enum status (*write_all)(struct schedule *schedule, struct err *err);
    bool overlaps; /* schedule_overlaps() */
    int least;     /* it exists for M >= least K */
} traits[SCHEDULE_KIND_COUNT] = {
  /* clang-format off */
    [SCHEDULE_GPIPE] = {"all forwards, then all backwards",
        SHAPE_LINE, false, live_all, write_breadth_first},
    [SCHEDULE_1F1B] = {"one forward, one backward; a rank holds at most K micro-batches",
        SHAPE_LINE, false, live_1f1b, write_1f1b},
    [SCHEDULE_INTERLEAVED] = {"1F1B over several stages a device: a shorter bubble, more messages",
        SHAPE_CHUNKS, false, live_1f1b, write_interleaved},
    [SCHEDULE_ZB_H1] = {"backward in two halves, the memory of 1F1B",
        SHAPE_LINE, true, live_zb_h1, write_zb_h1},
    [SCHEDULE_ZB_H2] = {"backward in two halves, twice the memory of 1F1B, almost no bubble",
        SHAPE_LINE, true, live_zb_h2, write_zb_h2},
    [SCHEDULE_ZB_V] = {"zero bubble on a V of two stages a device, the memory of 1F1B",
        SHAPE_V, true, live_zb_v, write_zb_v},
    [SCHEDULE_DUALPIPE_V] = {"DualPipe on a V of two stages a device",
        SHAPE_V, true, live_dualpipe_v, write_dualpipe_v, .overlaps = true, .least = 2},
    [SCHEDULE_EAGER_1F1B] = {"1F1B with more forwards in flight, for slow links",
        SHAPE_LINE, false, live_eager_1f1b, write_eager_1f1b},
    [SCHEDULE_BREADTH_FIRST] = {"all micro-batches of a stage before the next stage; GPipe's memory",
        SHAPE_CHUNKS, false, live_all, write_breadth_first},
    [SCHEDULE_V_HALF] = {"on a V, half of 1F1B's activations, for a longer bubble",
        SHAPE_V, true, live_block, .write_all = schedule_write_blocks},
    [SCHEDULE_V_MIN] = {"on a V, a third of 1F1B's activations, for a longer bubble",
        SHAPE_V, true, live_block, .write_all = schedule_write_blocks},
    [SCHEDULE_LOOPED_BFS] = {"breadth-first as PyTorch has it: backwards from the last micro-batch on",
        SHAPE_CHUNKS, false, live_all, write_looped_bfs},
    [SCHEDULE_SEARCH] = {"op lists of their own, found for the times of the stages and the memory",
        SHAPE_LINE, false, live_1f1b},
    [SCHEDULE_CUSTOM] = {"", SHAPE_LINE, false, live_1f1b},
  /* clang-format on */
};

enum schedule_shape schedule_shape(enum schedule_kind kind)
{
    return traits[kind].shape;
}

bool schedule_splits(enum schedule_kind kind)
{
    return traits[kind].splits;
}

bool schedule_overlaps(enum schedule_kind kind)
{
    return traits[kind].overlaps;
}

const char *schedule_kind_about(enum schedule_kind kind)
{
    return traits[kind].about;
}

int schedule_rank_of_stage(enum schedule_kind kind, int num_ranks, int stage)
{
    if (schedule_v_shaped(kind))
        return stage < num_ranks ? stage : 2 * num_ranks - 1 - stage;
    return stage % num_ranks;
}

int schedule_default_chunks(enum schedule_kind kind)
{
    return schedule_shape(kind) == SHAPE_LINE ? 1 : 2;
}

int schedule_chunks(enum schedule_kind kind, int asked)
{
    return schedule_any_chunks(kind) && asked > 0 ? asked : schedule_default_chunks(kind);
}

int64_t schedule_live(enum schedule_kind kind, int num_ranks, int num_microbatches, int chunks,
                      int stage)
{
    const struct place at = {.kind = kind,
                             .K = num_ranks,
                             .M = num_microbatches,
                             .v = chunks,
                             .r = schedule_rank_of_stage(kind, num_ranks, stage),
                             .chunk = stage / num_ranks,
                             .stage = stage};
    const int64_t live = traits[kind].live(&at);
    return live < num_microbatches ? live : num_microbatches;
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
    const int64_t least = (int64_t)traits[kind].least * K;
    if (M < least) {
        return err_set(err, ERR_INFEASIBLE,
                       "schedule '%s' on %d ranks needs at least %lld microbatches, got %d", name,
                       K, (long long)least, M);
    }
    return OK;
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
    for (int r = 0; r < num_ranks && traits[kind].write; r++) {
        struct writer to = {got.ranks[r].ops, num_ranks, num_microbatches, chunks, r};
        traits[kind].write(&to);
        got.ranks[r].num_ops = to.next - got.ranks[r].ops;
    }
    if (traits[kind].write_all)
        rc = traits[kind].write_all(&got, err);
    if (rc == OK) {
        *schedule = got;
        got = (struct schedule){0};
    }
    schedule_clear(&got);
    return rc;
}
