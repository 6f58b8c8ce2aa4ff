/* Names, memory and frozen prefixes of schedules. schedule_alloc() makes the lists of all ranks one
 * block, schedule_freeze() rewrites them in place. schedule_named.c has the traits and generates the
 * lists, schedule_check.c proves them. Read schedule.h first. */
#include "partition/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "partition/base/synonyms.h"
#include "partition/base/units.h"

#define NAME(value, name) name,
const char *const schedule_names[] = {SCHEDULE_KINDS(NAME) "custom", NULL};

const char *const op_kind_names[] = {
    "F",        "B",         "I",         "W",         "R",    "Z",    "C",      "P", "SEND_ACT",
    "RECV_ACT", "SEND_GRAD", "RECV_GRAD", "ALLREDUCE", "TIED", "NORM", "UPDATE", NULL};

struct microbatches microbatches_of(int64_t batch, int wanted)
{
    int64_t size = batch / wanted + (batch % wanted != 0);
    int64_t count = size > 0 ? batch / size + (batch % size != 0) : 0;
    return (struct microbatches){
        .count = (int)count, .size = size, .last_size = batch - size * (count - 1)};
}

bool schedule_has_halves(const struct schedule *schedule)
{
    for (int k = 0; k < schedule->num_ranks; k++)
        for (int64_t i = 0; i < schedule->ranks[k].num_ops; i++)
            if (schedule->ranks[k].ops[i].kind == OP_W)
                return true;
    return false;
}

const char *schedule_kind_name(enum schedule_kind kind)
{
    return (unsigned)kind < SCHEDULE_KIND_COUNT ? schedule_names[kind] : "?";
}

enum status schedule_kind_parse(const char *name, enum schedule_kind *kind, struct err *err)
{
    if (strcmp(name, "auto") == 0)
        name = schedule_names[SCHEDULE_SEARCH];
    for (int i = 0; i < SCHEDULE_KIND_COUNT; i++) {
        if (strcmp(name, schedule_names[i]) == 0) {
            *kind = (enum schedule_kind)i;
            return OK;
        }
    }
    const char *near = synonym_value(name, schedule_names);
    if (!near)
        near = nearest_name(name, schedule_names, SCHEDULE_KIND_COUNT);
    char list[256];
    enum status rc = err_set(err, ERR_INPUT, "unknown schedule '%s'%s%s%s", name,
                             near ? ", did you mean '" : "", near ? near : "", near ? "'" : "");
    err_hint(err, "schedules: %s", join_names(schedule_names, SCHEDULE_CUSTOM, list, sizeof list));
    return rc;
}

const char *op_kind_name(enum op_kind kind)
{
    return (unsigned)kind < OP_KIND_COUNT ? op_kind_names[kind] : "?";
}

enum status schedule_alloc(enum schedule_kind kind, int num_ranks, int num_stages,
                           int num_microbatches, const int64_t *room, struct schedule *schedule,
                           struct err *err)
{
    enum status rc;
    struct schedule got = {.kind = kind,
                           .num_ranks = num_ranks,
                           .num_stages = num_stages,
                           .num_microbatches = num_microbatches};
    int64_t total = 0;
    if (num_ranks < 1 || num_stages < 1 || num_stages > SCHEDULE_MAX_STAGES) {
        return err_set(err, ERR_INPUT, "schedule of %d ranks and %d stages, the limit is %d",
                       num_ranks, num_stages, SCHEDULE_MAX_STAGES);
    }
    for (int k = 0; k < num_ranks; k++) {
        if (!add_ok(total, room[k], &total) || total > 8 * SCHEDULE_MAX_OPS) {
            return err_set(err, ERR_INPUT, "schedule of more than %lld ops",
                           (long long)(8 * SCHEDULE_MAX_OPS));
        }
    }
    got.rank_of_stage = calloc((size_t)num_stages, sizeof *got.rank_of_stage);
    got.ranks = calloc((size_t)num_ranks, sizeof *got.ranks);
    got.block = malloc((size_t)(total > 0 ? total : 1) * sizeof *got.block);
    if (!got.rank_of_stage || !got.ranks || !got.block) {
        rc = err_nomem(err);
        goto out;
    }
    struct op *at = got.block;
    for (int k = 0; k < num_ranks; k++) {
        got.ranks[k].ops = at;
        at += room[k];
    }
    *schedule = got;
    got = (struct schedule){0};
    rc = OK;
out:
    schedule_clear(&got);
    return rc;
}

void schedule_clear(struct schedule *schedule)
{
    free(schedule->rank_of_stage);
    free(schedule->ranks);
    free(schedule->block);
    free(schedule->lowered);
    free(schedule->edges);
    *schedule = (struct schedule){0};
}

enum status schedule_copy(const struct schedule *src, struct schedule *dst, struct err *err)
{
    enum status rc;
    struct schedule got = {0};
    int64_t *room = calloc((size_t)(src->num_ranks > 0 ? src->num_ranks : 1), sizeof *room);
    if (!room)
        return err_nomem(err);
    for (int k = 0; k < src->num_ranks; k++)
        room[k] = src->ranks[k].num_ops;
    rc = schedule_alloc(src->kind, src->num_ranks, src->num_stages, src->num_microbatches, room,
                        &got, err);
    if (rc != OK)
        goto out;
    got.num_frozen_stages = src->num_frozen_stages;
    got.drop_first_input = src->drop_first_input;
    got.norm = src->norm;
    got.tied = src->tied;
    memcpy(got.rank_of_stage, src->rank_of_stage, (size_t)src->num_stages * sizeof(int));
    for (int k = 0; k < src->num_ranks; k++) {
        got.ranks[k].num_ops = room[k];
        memcpy(got.ranks[k].ops, src->ranks[k].ops, (size_t)room[k] * sizeof(struct op));
    }
    if (src->lowered) {
        got.num_edges = src->num_edges;
        got.lowered = malloc((size_t)src->num_stages * sizeof *got.lowered);
        got.edges = malloc((size_t)(src->num_edges + 1) * sizeof *got.edges);
        if (!got.lowered || !got.edges) {
            rc = err_nomem(err);
            goto out;
        }
        memcpy(got.lowered, src->lowered, (size_t)src->num_stages * sizeof *got.lowered);
        memcpy(got.edges, src->edges, (size_t)src->num_edges * sizeof *got.edges);
    }
    *dst = got;
    got = (struct schedule){0};
    rc = OK;
out:
    schedule_clear(&got);
    free(room);
    return rc;
}

enum status schedule_freeze(struct schedule *schedule, int num_frozen_stages, bool drop_first_input,
                            struct err *err)
{
    if (num_frozen_stages < 0 || num_frozen_stages >= schedule->num_stages) {
        return err_set(err, ERR_INPUT, "cannot freeze %d of %d stages, the limit is %d",
                       num_frozen_stages, schedule->num_stages, schedule->num_stages - 1);
    }
    if (schedule->lowered || schedule->num_frozen_stages > 0 || schedule->drop_first_input)
        return err_set(err, ERR_INPUT, "cannot freeze a schedule that is lowered or frozen");
    bool split = false;
    for (int k = 0; k < schedule->num_ranks; k++) {
        struct rank_ops *rank = &schedule->ranks[k];
        int64_t kept = 0;
        for (int64_t i = 0; i < rank->num_ops; i++) {
            struct op op = rank->ops[i];
            if (op.stage < num_frozen_stages) {
                if (op.kind != OP_F)
                    continue;
                op.kind = OP_Z;
            } else if (op.stage == num_frozen_stages && drop_first_input && op.kind == OP_I) {
                split = true;
                continue;
            }
            rank->ops[kept++] = op;
        }
        rank->num_ops = kept;
    }
    schedule->num_frozen_stages = num_frozen_stages;
    schedule->drop_first_input = drop_first_input && split;
    return OK;
}

void schedule_peak_live(const struct schedule *schedule, int *peak_live)
{
    for (int k = 0; k < schedule->num_ranks; k++) {
        const struct rank_ops *rank = &schedule->ranks[k];
        int live = 0, peak = 0;
        for (int64_t i = 0; i < rank->num_ops; i++) {
            switch (rank->ops[i].kind) {
            case OP_F:
                live++;
                peak = live > peak ? live : peak;
                break;
            case OP_B:
            case OP_W:
                live--;
                break;
            default:
                break;
            }
        }
        peak_live[k] = peak;
    }
}
