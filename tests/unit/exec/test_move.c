/* Moves between layouts. ranks: 4
 *
 * Judge: every value is a function of (item, tensor, kind, index), so that whoever holds a tensor
 * can tell whether it is the right one; bytes are counted item by item from both plans. */
#include "exec/change/move.h"

#include "exec/base/rng.h"
#include "exec/change/thaw.h"
#include "tests/unit/deployment_case.h"
#include "tests/unit/on_ranks.h"
#include "tests/unit/test.h"

enum { RUNS = 60, LATE_COPIES = 4096 };

static struct case_base c;

/* A device whose memory is the host's, and whose copies happen when somebody asks whether they
 * have: at random, later ones never first. */
struct backend_lane {
    struct {
        void *to;
        const void *from;
        int64_t bytes;
    } copies[LATE_COPIES]; /* the n-th at n modulo their number */
    int64_t num, ran;
};
struct backend_event {
    struct backend_lane *lane;
    int64_t behind; /* as many copies */
};
static uint32_t late_draws;

static enum status late_lane_new(struct backend *be, struct backend_lane **lane, struct err *err)
{
    (void)be;
    *lane = calloc(1, sizeof **lane);
    return *lane ? OK : err_nomem(err);
}
static void late_lane_free(struct backend *be, struct backend_lane *lane)
{
    (void)be;
    free(lane);
}
static enum status late_event_new(struct backend *be, struct backend_event **event, struct err *err)
{
    (void)be;
    *event = calloc(1, sizeof **event);
    return *event ? OK : err_nomem(err);
}
static void late_event_free(struct backend *be, struct backend_event *event)
{
    (void)be;
    free(event);
}
static void late_copy(struct backend *be, struct backend_lane *lane, void *to, const void *from,
                      int64_t bytes)
{
    (void)be;
    assert_true(lane->num - lane->ran < LATE_COPIES);
    const int64_t at = lane->num++ % LATE_COPIES;
    lane->copies[at].to = to;
    lane->copies[at].from = from;
    lane->copies[at].bytes = bytes;
}
static void late_record(struct backend *be, struct backend_lane *lane, struct backend_event *event)
{
    (void)be;
    event->lane = lane;
    event->behind = lane->num;
}
static bool late_done(struct backend *be, struct backend_event *event)
{
    (void)be;
    struct backend_lane *lane = event->lane;
    if (rng_bits(29, late_draws++) % 3 == 0)
        for (; lane->ran < event->behind; lane->ran++) {
            const int64_t at = lane->ran % LATE_COPIES;
            memcpy(lane->copies[at].to, lane->copies[at].from, (size_t)lane->copies[at].bytes);
        }
    return lane->ran >= event->behind;
}

/* The cpu backend's own would look for more than a table. */
static enum status late_sync(struct backend *be, struct err *err)
{
    (void)be;
    (void)err;
    return OK;
}

/* As a device sees it: in pieces of 40 bytes, 3 at a time. */
static enum status move_on_device(struct deployment *old, struct deployment *next, int64_t *bytes,
                                  struct err *err)
{
    struct backend late = *c.base.backend;
    struct deployment_base base = c.base;
    late.host_memory = false;
    late.sync = late.failure = late_sync;
    late.lane_new = late_lane_new;
    late.lane_free = late_lane_free;
    late.lane_copy_in = late.lane_copy_out = late_copy;
    late.lane_record = late_record;
    late.event_new = late_event_new;
    late.event_free = late_event_free;
    late.event_done = late_done;
    base.backend = &late;
    enum status rc = parcel_room_new(&late, 40, 3, &base.parcel_room, err);
    if (rc == OK)
        rc = move_weights(&base, old, next, bytes, err);
    parcel_room_free(base.parcel_room);
    return rc;
}

static float value(int item, int tensor, int kind, int64_t i)
{
    return (float)rng_normal(rng_key(3, (uint64_t)item, (uint64_t)tensor, (uint64_t)kind),
                             (uint64_t)i);
}

/* The number of a param among those of its item: the table's copy is the item of the table. */
static int nth_of(struct stage *stage, int p)
{
    const struct param *params = stage_params(stage);
    int nth = 0;
    for (int i = 0; i < p; i++)
        nth += params[i].item == params[p].item && params[i].tied_copy == params[p].tied_copy;
    return nth;
}

static void visit(struct deployment *deployment, bool write)
{
    for (int s = 0; deployment->stages && s <= deployment->plan.plan.num_stages; s++) {
        struct stage *stage = deployment->stages[s];
        for (int p = 0; stage && p < stage_num_params(stage); p++) {
            struct param *param = &stage_params(stage)[p];
            const int item = param->tied_copy ? 0 : param->item, nth = nth_of(stage, p);
            float *tensors[] = {param->weight, param->state[0], param->state[1]};
            for (int k = 0; k < 3; k++)
                for (int64_t i = 0; tensors[k] && i < param->num_elems; i++) {
                    if (write)
                        tensors[k][i] = value(item, nth, k, i);
                    else if (tensors[k][i] != value(item, nth, k, i))
                        fail_msg("rank %d: item %d, tensor %d, kind %d is not what it was",
                                 c.comm.rank, item, nth, k);
                }
        }
    }
}

static int64_t params_of(int item)
{
    return c.job.model.items[item].params * (int64_t)sizeof(float);
}

/* The bytes that must cross: each rank's items that it did not run before, with the state where they train,
 * and the copy of a tied table. */
static int64_t count_bytes(const struct plan *old, const struct plan *next)
{
    int64_t bytes = 0;
    for (int rank = 0; rank < c.comm.size; rank++)
        for (int item = 0; item < c.job.model.num_items; item++) {
            const bool trains = item >= model_frozen_items(&c.job.model, next->num_frozen_layers);
            if (case_runs(next, rank, item) && !case_runs(old, rank, item))
                bytes += params_of(item) * (trains ? 1 + next->optim_bytes_per_param / 4 : 1);
        }
    const int last = c.job.model.num_items - 1;
    const int64_t tied = c.job.model.items[last].tied_params * (int64_t)sizeof(float);
    for (int rank = 0; rank < c.comm.size; rank++)
        if (next->first_item[next->num_stages - 1] > 0 && case_runs(next, rank, last) &&
            !case_runs(old, rank, last) && !case_runs(old, rank, 0))
            bytes +=
                tied * (next->num_frozen_layers == 0 ? 1 + next->optim_bytes_per_param / 4 : 1);
    return bytes;
}

static const float *weight_of(struct deployment *deployment, int item)
{
    for (int s = 0; deployment->stages && s <= deployment->plan.plan.num_stages; s++)
        for (int p = 0; deployment->stages[s] && p < stage_num_params(deployment->stages[s]); p++) {
            const struct param *param = &stage_params(deployment->stages[s])[p];
            if (param->item == item && !param->tied_copy)
                return param->weight;
        }
    return NULL;
}

static struct train_plan draw(uint64_t run, int at, int least_frozen)
{
    const uint64_t bits = rng_bits(17, (uint32_t)(8 * run + (uint64_t)at));
    const int ranks = c.comm.size, k = 1 + (int)(bits % (unsigned)ranks);
    const int r = 1 + (int)(bits / 7 % (unsigned)(ranks / k));
    const int frozen = least_frozen + (int)(bits / 64 % (unsigned)(5 - least_frozen));
    static const enum frozen_placement placements[] = {FROZEN_FIRST, FROZEN_SPREAD, FROZEN_CACHED};
    enum frozen_placement placement = frozen ? placements[bits / 512 % 3] : FROZEN_NONE;
    /* At F = L two items are left in front of the head. */
    const int left = c.job.model.num_items - model_frozen_items(&c.job.model, frozen);
    if (placement != FROZEN_SPREAD && k > left)
        placement = FROZEN_SPREAD;
    struct train_plan plan =
        case_plan(&c, k, r, frozen, placement, (int)(bits / 4096 % (unsigned)ranks));
    plan.plan.optim_bytes_per_param = c.job.train.optimizer.kind == OPTIMIZER_ADAMW ? 8 : 4;
    return plan;
}

static void run_moves(enum optimizer_kind kind, bool device)
{
    c.job.train.optimizer.kind = kind;
    for (uint64_t run = 0; run < RUNS; run++) {
        struct deployment old = {0}, next = {0};
        struct err err = {0};
        int64_t bytes = -1;
        case_deployment(&c, draw(run, 0, 0), &old);
        case_deployment(&c, draw(run, 1, old.plan.plan.num_frozen_layers), &next);
        const int items = c.job.model.num_items;
        const float **was = calloc((size_t)items, sizeof *was);
        visit(&old, true);
        for (int i = 0; i < items; i++)
            was[i] = weight_of(&old, i);
        case_ok(device ? move_on_device(&old, &next, &bytes, &err)
                       : move_weights(&c.base, &old, &next, &bytes, &err),
                &err);
        visit(&next, false);
        /* Survivors: the very buffers (but where a stage lays its items out otherwise). */
        for (int i = 0; i < items && c.job.model.family == FAMILY_VIT; i++)
            if (was[i] && weight_of(&next, i))
                assert_ptr_equal(weight_of(&next, i), was[i]);
        assert_int_equal(bytes, count_bytes(&old.plan.plan, &next.plan.plan));
        free(was);
        deployment_clear(&old);
        visit(&next, false); /* nothing of the old deployment is needed */
        deployment_clear(&next);
        case_ok(comm_barrier(c.comm.all, &err), &err);
    }
}

static void move_weights__moves_only_where_the_owner_changes(void **state)
{
    (void)state;
    case_open(&c, FAMILY_VIT);
    run_moves(OPTIMIZER_SGD, false);
    run_moves(OPTIMIZER_ADAMW, false);
    case_close(&c);
}

static void move_weights__brings_copies_of_a_tied_table(void **state)
{
    (void)state;
    case_open(&c, FAMILY_GPT);
    run_moves(OPTIMIZER_SGD, false);
    run_moves(OPTIMIZER_ADAMW, false);
    case_close(&c);
}

static void move_weights__goes_through_a_device_s_window_in_pieces(void **state)
{
    (void)state;
    case_open(&c, FAMILY_VIT);
    run_moves(OPTIMIZER_ADAMW, true);
    case_close(&c);
    case_open(&c, FAMILY_GPT);
    run_moves(OPTIMIZER_ADAMW, true);
    case_close(&c);
}

static int frozen_items(const struct deployment *deployment)
{
    return model_frozen_items(&c.job.model, deployment->plan.plan.num_frozen_layers);
}

/* Layers freeze and some of them train again, under three plans: each tensor of state comes back to
 * every holder, the head's copy of a tied table included. */
static void run_thaws(enum model_family family)
{
    int thawed = 0;
    case_open(&c, family);
    c.job.train.optimizer.kind = OPTIMIZER_ADAMW;
    for (uint64_t run = 0; run < RUNS; run++) {
        struct deployment a = {0}, b = {0}, last = {0};
        struct kept_state kept = {0};
        struct err err = {0};
        int64_t bytes = 0, back = 0;
        case_deployment(&c, draw(run, 0, 0), &a);
        case_deployment(&c, draw(run, 1, a.plan.plan.num_frozen_layers), &b);
        case_deployment(&c, draw(run, 2, a.plan.plan.num_frozen_layers), &last);
        const int from = frozen_items(&a), high = frozen_items(&b), low = frozen_items(&last);
        visit(&a, true);
        case_ok(thaw_keep(&c.base, &a, from, high, &kept, &err), &err);
        case_ok(move_weights(&c.base, &a, &b, &bytes, &err), &err);
        assert_int_equal(kept_has(&kept, from, high), c.comm.rank == 0 || from == high);
        if (low < high) {
            case_ok(move_weights(&c.base, &b, &last, &bytes, &err), &err);
            case_ok(thaw_return(&c.base, &last, low, high, &kept, &back, &err), &err);
            visit(&last, false);
            assert_true(back > 0);
            assert_false(kept_has(&kept, low, high));
            assert_int_equal(thaw_return(&c.base, &last, low, high, &kept, &back, &err), ERR_INPUT);
            thawed++;
        }
        kept_clear(&kept);
        deployment_clear(&a);
        deployment_clear(&b);
        deployment_clear(&last);
        case_ok(comm_barrier(c.comm.all, NULL), NULL);
    }
    assert_true(thawed > RUNS / 4);
    case_close(&c);
}

static void thaw__brings_state_back_to_all_holders(void **state)
{
    (void)state;
    run_thaws(FAMILY_VIT);
    run_thaws(FAMILY_GPT);
}

static void move_weights__moves_nothing_when_nothing_changes(void **state)
{
    (void)state;
    struct deployment old = {0}, next = {0};
    struct err err = {0};
    int64_t bytes = -1;
    case_open(&c, FAMILY_VIT);
    case_deployment(&c, case_plan(&c, 2, 2, 1, FROZEN_FIRST, 0), &old);
    case_deployment(&c, case_plan(&c, 2, 2, 1, FROZEN_CACHED, 0), &next);
    visit(&old, true);
    case_ok(move_weights(&c.base, &old, &next, &bytes, &err), &err);
    assert_int_equal(bytes, 0);
    visit(&next, false);
    deployment_clear(&old);
    deployment_clear(&next);
    case_close(&c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(move_weights__moves_only_where_the_owner_changes),
        cmocka_unit_test(move_weights__brings_copies_of_a_tied_table),
        cmocka_unit_test(move_weights__goes_through_a_device_s_window_in_pieces),
        cmocka_unit_test(move_weights__moves_nothing_when_nothing_changes),
        cmocka_unit_test(thaw__brings_state_back_to_all_holders),
    };
    on_ranks_begin(&argc, &argv, 4, &c.comm);
    return on_ranks_end(&c.comm, cmocka_run_group_tests(tests, NULL, NULL));
}
