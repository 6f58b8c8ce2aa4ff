/* v-half and v-min: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory".
 *
 * A building block says at which slot each pass of one micro-batch runs on each rank, when F, I and
 * W take one slot each. The schedule repeats the block every 6 slots, because a rank has 6 passes a
 * micro-batch (3 for each arm of the V). No two passes of a rank may fall on one slot modulo 6, and
 * then the stable phase has no idle slots. The number of slots from F to W decides how many
 * activations live: from the first to the last pass the block of v-min takes about 4K slots, that
 * of v-half about 6K. So they hold about 1/3 and 1/2 of what 1F1B holds.
 *
 * The ops run as early as their messages allow, in the order of the block's slots. In the last
 * phase, when a rank has no forward left, an I whose gradient is there goes first and a W fills the
 * gap (the paper's reordering of the cool-down). Read block_of() first, then
 * schedule_write_blocks(). */
#include "partition/schedule/schedule_blocks.h"

#include <stdlib.h>

enum { PERIOD = 6 };
/* The passes of a rank: stage `down` is on the first arm of the V, stage `up` on the second. */
enum pass { F_DOWN, F_UP, I_UP, I_DOWN, W_UP, W_DOWN, NUM_PASSES };

struct block {
    int at[NUM_PASSES]; /* slot of micro-batch 0; micro-batch m is 6 m slots later */
};

/* The first slot after `slot` that equals `residue` modulo the period. */
static int slot_after(int slot, int residue)
{
    return slot + 1 + (residue + PERIOD - (slot + 1) % PERIOD) % PERIOD;
}

/* Put the two W's on the two slots that the other passes leave free, each after its I. Of the two
 * ways, take the one that frees the activations sooner. */
static void place_weights(struct block *block)
{
    int free_slots[2], n = 0;
    for (int residue = 0; residue < PERIOD && n < 2; residue++) {
        bool used = false;
        for (int p = F_DOWN; p <= I_DOWN; p++)
            used |= block->at[p] % PERIOD == residue;
        if (!used)
            free_slots[n++] = residue;
    }
    const int up[2] = {slot_after(block->at[I_UP], free_slots[0]),
                       slot_after(block->at[I_UP], free_slots[1])};
    const int down[2] = {slot_after(block->at[I_DOWN], free_slots[1]),
                         slot_after(block->at[I_DOWN], free_slots[0])};
    const int way = up[1] + down[1] < up[0] + down[0];
    block->at[W_UP] = up[way];
    block->at[W_DOWN] = down[way];
}

/* The block of rank r. A pass reaches the next rank after one slot, in v-half after two where it
 * goes to a higher rank (forward of the first arm, backward of the second). Where two passes of a
 * rank would meet modulo 6, the backward begins a few slots later. */
static struct block block_of(enum schedule_kind kind, int K, int r)
{
    struct block block;
    if (kind == SCHEDULE_V_MIN) {
        const int late = K % 3 == 0 ? 2 : 0;
        block = (struct block){
            {r, 2 * K - 1 - r, 2 * K + late + r, 4 * K - 1 + late - r}
        };
    } else {
        const int late = K % 2 == 0 ? 3 : 0;
        block = (struct block){
            {2 * r, 3 * K - 2 - r, 3 * K - 1 + late + 2 * r, 6 * K - 2 + late - r}
        };
    }
    place_weights(&block);
    return block;
}

int schedule_block_live(enum schedule_kind kind, int num_ranks, int stage)
{
    const int r = stage < num_ranks ? stage : 2 * num_ranks - 1 - stage;
    const struct block block = block_of(kind, num_ranks, r);
    const int slots = block.at[I_UP] - block.at[stage < num_ranks ? F_DOWN : F_UP];
    return (slots + PERIOD - 1) / PERIOD;
}

struct rank_walk {
    struct block block;
    int next[NUM_PASSES]; /* micro-batch of the next op of each pass */
};

struct walk {
    int K, M;
    int slot;
    int32_t *forward, *input; /* [stage * M + microbatch]: slot at which the op ends; 0: not run */
    struct rank_walk *ranks;
};

static int stage_of(const struct walk *walk, int r, enum pass pass)
{
    const bool down = pass == F_DOWN || pass == I_DOWN || pass == W_DOWN;
    return down ? r : 2 * walk->K - 1 - r;
}

/* Whether the rank's next op of this pass can start in the walk's slot. */
static bool is_ready(const struct walk *walk, int r, enum pass pass)
{
    const int s = stage_of(walk, r, pass), m = walk->ranks[r].next[pass], last = 2 * walk->K - 1;
    const int32_t *need;
    if (m >= walk->M)
        return false;
    if (pass == F_DOWN || pass == F_UP)
        need = s > 0 ? &walk->forward[(int64_t)(s - 1) * walk->M + m] : NULL;
    else if (pass == I_UP || pass == I_DOWN)
        need = s < last ? &walk->input[(int64_t)(s + 1) * walk->M + m]
                        : &walk->forward[(int64_t)s * walk->M + m];
    else
        need = &walk->input[(int64_t)s * walk->M + m];
    return !need || (*need > 0 && *need <= walk->slot);
}

/* The pass from first to end whose next op comes first in the block's order. With `ready`, only
 * those that can start now count. Returns NUM_PASSES if there is none. */
static enum pass first_of(const struct walk *walk, int r, enum pass first, enum pass end,
                          bool ready)
{
    const struct rank_walk *rank = &walk->ranks[r];
    enum pass best = NUM_PASSES;
    int64_t best_at = INT64_MAX;
    for (int p = first; p < (int)end; p++) {
        const int64_t at = rank->block.at[p] + (int64_t)PERIOD * rank->next[p];
        if (rank->next[p] < walk->M && at < best_at &&
            (!ready || is_ready(walk, r, (enum pass)p))) {
            best = (enum pass)p;
            best_at = at;
        }
    }
    return best;
}

/* The pass that rank r runs in the walk's slot, or NUM_PASSES if it waits. */
static enum pass choose(const struct walk *walk, int r)
{
    const struct rank_walk *rank = &walk->ranks[r];
    enum pass pass;
    if (rank->next[F_DOWN] < walk->M || rank->next[F_UP] < walk->M) {
        pass = first_of(walk, r, F_DOWN, NUM_PASSES, false);
        return is_ready(walk, r, pass) ? pass : NUM_PASSES;
    }
    pass = first_of(walk, r, I_UP, W_UP, true);
    return pass < NUM_PASSES ? pass : first_of(walk, r, W_UP, NUM_PASSES, true);
}

static void run(struct walk *walk, int r, enum pass pass, struct rank_ops *list)
{
    static const enum op_kind kinds[] = {OP_F, OP_F, OP_I, OP_I, OP_W, OP_W};
    const int s = stage_of(walk, r, pass), m = walk->ranks[r].next[pass]++;
    list->ops[list->num_ops++] =
        (struct op){.microbatch = m, .stage = (uint16_t)s, .kind = (uint8_t)kinds[pass]};
    if (kinds[pass] == OP_F)
        walk->forward[(int64_t)s * walk->M + m] = walk->slot + 1;
    else if (kinds[pass] == OP_I)
        walk->input[(int64_t)s * walk->M + m] = walk->slot + 1;
}

/* Slot by slot, each rank runs the op that it chooses. An op's result counts from the next slot on,
 * so the order of ranks within a slot does not matter. */
enum status schedule_write_blocks(struct schedule *schedule, struct err *err)
{
    const int K = schedule->num_ranks, M = schedule->num_microbatches;
    const size_t pairs = 2 * (size_t)K * (size_t)M;
    struct walk walk = {.K = K, .M = M};
    enum status rc = OK;
    int64_t left = 6 * (int64_t)K * M;
    walk.forward = calloc(pairs, sizeof *walk.forward);
    walk.input = calloc(pairs, sizeof *walk.input);
    walk.ranks = calloc((size_t)K, sizeof *walk.ranks);
    if (!walk.forward || !walk.input || !walk.ranks) {
        rc = err_nomem(err);
        goto out;
    }
    for (int r = 0; r < K; r++) {
        walk.ranks[r].block = block_of(schedule->kind, K, r);
        schedule->ranks[r].num_ops = 0;
    }
    for (; left > 0; walk.slot++) {
        for (int r = 0; r < K; r++) {
            const enum pass pass = choose(&walk, r);
            if (pass < NUM_PASSES) {
                run(&walk, r, pass, &schedule->ranks[r]);
                left--;
            }
        }
    }
out:
    free(walk.forward);
    free(walk.input);
    free(walk.ranks);
    return rc;
}
