/* Turns, decisions and idle ranks. ranks: 4
 *
 * What a change does to weights and batches is in test_move.c and test_deployment.c; whole runs with
 * changes are in e2e_elastic.sh and e2e_cache.sh. */
#include "exec/change/elastic.h"

#include <unistd.h>

#include "exec/trainer/trainer_state.h"
#include "tests/unit/deployment_case.h"
#include "tests/unit/on_ranks.h"
#include "tests/unit/test.h"

static struct case_base c;

static void open_trainer(struct trainer *t)
{
    *t = (struct trainer){.comm = &c.comm, .job = &c.job, .out = "."};
    t->base = c.base;
}

static void turn_due__at_epochs_or_every_n_steps(void **state)
{
    (void)state;
    struct trainer t;
    open_trainer(&t);
    t.progress = (struct progress){.step = 12, .epoch = 3, .position = 0};
    assert_true(trainer_turn_due(&t));
    assert_int_equal(trainer_turn(&t), 3);
    t.progress.position = 32;
    assert_false(trainer_turn_due(&t));
    c.job.freeze.every_steps = 5;
    int64_t turns = 0;
    for (int64_t step = 0; step < 23; step++) {
        t.progress.step = step;
        assert_int_equal(trainer_turn_due(&t),
                         step == 0 || step == 5 || step == 10 || step == 15 || step == 20);
        turns += step > 0 && trainer_turn_due(&t);
        assert_int_equal(trainer_turn(&t), turns);
    }
    c.job.freeze.every_steps = 0;
}

static void elastic_open__replays_the_decisions_so_far(void **state)
{
    (void)state;
    int table[] = {0, 1, 3}, num_frozen = -1;
    struct err err = {0};
    struct trainer t;
    c.job.freeze.policy = FREEZE_TABLE;
    c.job.freeze.table = table;
    c.job.freeze.num_table = 3;
    static const struct {
        struct progress progress;
        int64_t every;
        int frozen;
    } cases[] = {
        {{.step = 0, .epoch = 0, .position = 0},                         0, 0},
        {{.step = 9, .epoch = 1, .position = 0},                         0, 1},
        {{.step = 9, .epoch = 1, .position = 8},                         0, 0}, /* see below */
        {{.step = 10, .epoch = 1, .position = 8},                        5, 3},
        {{.step = 9, .epoch = 1, .position = 8},                         5, 0},
        {{.step = 9, .epoch = 1, .position = 8, .num_frozen_layers = 2}, 5, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_trainer(&t);
        t.progress = cases[i].progress;
        c.job.freeze.every_steps = cases[i].every;
        case_ok(elastic_open(&t, NULL, &num_frozen, &err), &err);
        /* In the middle of a turn its decision stands in the checkpoint (num_frozen_layers). */
        assert_int_equal(num_frozen, cases[i].frozen);
        elastic_clear(&t.elastic);
        elastic_clear(&t.elastic);
    }
    c.job.freeze.every_steps = 0;
    c.job.freeze.min_active = 2; /* a table that goes further is held back */
    open_trainer(&t);
    t.progress = (struct progress){.step = 40, .epoch = 2, .position = 0};
    case_ok(elastic_open(&t, NULL, &num_frozen, &err), &err);
    assert_int_equal(num_frozen, 2);
    elastic_clear(&t.elastic);
    c.job.freeze.min_active = 0;
    c.job.freeze.table = NULL;
    c.job.freeze.num_table = 0;
    c.job.freeze.policy = FREEZE_NONE;
}

/* Rank 0 works alone; the others wait, obey, and learn how the run ended. */
static void elastic_idle__obeys_until_the_run_ends(void **state)
{
    (void)state;
    static const enum status ends[] = {OK, ERR_INFEASIBLE};
    for (int i = 0; i < 2; i++) {
        struct trainer t;
        struct err err = {0};
        open_trainer(&t);
        case_deployment(&c, case_plan(&c, 1, 1, 0, FROZEN_NONE, 0), &t.deployment);
        assert_int_equal(deployment_idle(&t.deployment), c.comm.rank != 0);
        t.progress = (struct progress){.step = c.comm.rank ? 0 : 77, .epoch = 3, .position = 12};
        t.last_saved = 77; /* a save has nothing to do */
        if (c.comm.rank == 0) {
            usleep(20000);
            case_ok(elastic_order(&t, ORDER_SAVE, OK, &err), &err);
            if (ends[i] != OK)
                err_set(&err, ends[i], "step 77: the loss is nan");
            elastic_order(&t, ORDER_END, ends[i], &err);
        } else {
            bool ended = false;
            assert_int_equal(elastic_idle(&t, &ended, &err), ends[i]);
            assert_true(ended);
            assert_int_equal(t.progress.step, 77);
            assert_int_equal(t.progress.position, 12);
            assert_string_equal(err.msg, ends[i] == OK ? "" : "step 77: the loss is nan");
        }
        assert_int_equal(deployment_idle(&t.deployment), c.comm.rank != 0);
        deployment_clear(&t.deployment);
        assert_int_equal(comm_barrier(c.comm.all, NULL), OK);
    }
}

static void elastic_json__lists_changes_and_their_sum(void **state)
{
    (void)state;
    struct trainer t;
    open_trainer(&t);
    struct transition_note notes[2] = {
        {.epoch = 1, .step = 9, .bytes = 100, .total_ns = 50,    .frozen_layers = 2, .reason = "why"},
        {.epoch = 1,          .step = 12,          .bytes = 7,   .total_ns = 30, .frozen_layers = 3  },
    };
    notes[0].part_ns[PART_MOVE] = 20;
    t.elastic.notes = notes;
    t.elastic.num_notes = 2;
    struct json *root = json_object_new();
    elastic_json(&t, root);
    const struct json *list = json_get(root, "transitions");
    assert_int_equal(json_count(list), 2);
    assert_int_equal((int)json_number(json_get(json_at(list, 0), "move_ns")), 20);
    assert_int_equal((int)json_number(json_get(json_at(list, 0), "moved_bytes")), 100);
    assert_int_equal((int)json_number(json_get(json_at(list, 1), "step")), 12);
    assert_int_equal((int)json_number(json_get(json_at(list, 1), "frozen_layers")), 3);
    assert_int_equal((int)json_number(json_get(root, "transition_ns")), 80);
    json_free(root);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turn_due__at_epochs_or_every_n_steps),
        cmocka_unit_test(elastic_open__replays_the_decisions_so_far),
        cmocka_unit_test(elastic_idle__obeys_until_the_run_ends),
        cmocka_unit_test(elastic_json__lists_changes_and_their_sum),
    };
    on_ranks_begin(&argc, &argv, 4, &c.comm);
    case_open(&c, FAMILY_VIT);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    case_close(&c);
    return on_ranks_end(&c.comm, failed);
}
