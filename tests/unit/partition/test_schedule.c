/* Named schedules: complete for all small counts, published closed forms, freezing, CSV. */
#include "partition/schedule/schedule.h"
#include "tests/unit/schedule_oracle.h"
#include "tests/unit/test.h"

static const int num_chunks[SCHEDULE_SEARCH] = {
    [SCHEDULE_GPIPE] = 1,      [SCHEDULE_1F1B] = 1,       [SCHEDULE_INTERLEAVED] = 2,
    [SCHEDULE_ZB_H1] = 1,      [SCHEDULE_ZB_H2] = 1,      [SCHEDULE_ZB_V] = 2,
    [SCHEDULE_DUALPIPE_V] = 2, [SCHEDULE_EAGER_1F1B] = 1, [SCHEDULE_BREADTH_FIRST] = 2,
    [SCHEDULE_V_HALF] = 2,     [SCHEDULE_V_MIN] = 2,      [SCHEDULE_LOOPED_BFS] = 2};

static struct schedule generate(enum schedule_kind kind, int K, int M, int v)
{
    struct schedule schedule = {0};
    struct err err = {0};
    if (schedule_generate(kind, K, M, v, &schedule, &err) != OK)
        fail_msg("%s", err.msg);
    return schedule;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static void schedule_generate__is_complete_and_ascending_for_all_small_counts(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCHEDULE_SEARCH; kind++) {
        for (int K = 1; K <= 6; K++) {
            for (int M = kind == SCHEDULE_DUALPIPE_V ? 2 * K : 1; M <= 20; M++) {
                for (int v = num_chunks[kind];
                     v <= (schedule_any_chunks((enum schedule_kind)kind) ? 4 : num_chunks[kind]);
                     v++) {
                    struct schedule s = generate((enum schedule_kind)kind, K, M, v);
                    struct err err = {0};
                    assert_true(oracle_run(&s, (struct oracle_times){3, 5, 2, 3}).complete);
                    assert_int_equal(schedule_check(&s, 0, &err), OK);
                    schedule_clear(&s);
                }
            }
        }
    }
}

static void schedule_generate__takes_the_published_time_when_stages_are_equal(void **state)
{
    (void)state;
    const struct oracle_times uneven = {7, 11, 6, 5}, unit = {1, 2, 1, 1};
    for (int K = 1; K <= 8; K++) {
        for (int M = K; M <= 4 * K; M += K) {
            const int64_t full = (int64_t)(M + K - 1) * (7 + 11);
            struct schedule s = generate(SCHEDULE_GPIPE, K, M, 1);
            assert_int_equal(oracle_run(&s, uneven).step, full);
            schedule_clear(&s);
            s = generate(SCHEDULE_1F1B, K, M, 1);
            assert_int_equal(oracle_run(&s, uneven).step, full);
            schedule_clear(&s);
            s = generate(SCHEDULE_EAGER_1F1B, K, M, 1);
            assert_int_equal(oracle_run(&s, uneven).step, full);
            schedule_clear(&s);
            /* A rank's work is v times a chunk's: the bubble is (K-1)(f+b)/v of the rank's f, b. */
            for (int v = 2; v <= 4; v++) {
                s = generate(SCHEDULE_INTERLEAVED, K, M, v);
                assert_int_equal(oracle_run(&s, uneven).step, (int64_t)(M * v + K - 1) * 18);
                schedule_clear(&s);
                s = generate(SCHEDULE_BREADTH_FIRST, K, M, v);
                assert_int_equal(oracle_run(&s, uneven).step, (int64_t)(M * v + K - 1) * 18);
                schedule_clear(&s);
            }
        }
        /* (K-1)(f + b_input - b_weight), within a device's own span. */
        struct schedule s = generate(SCHEDULE_ZB_H1, K, 3 * K, 1);
        assert_int_equal(oracle_run(&s, unit).span_idle, K - 1);
        schedule_clear(&s);
        s = generate(SCHEDULE_ZB_H2, K, 3 * K, 1);
        assert_int_equal(oracle_run(&s, unit).span_idle, 0);
        schedule_clear(&s);
        s = generate(SCHEDULE_ZB_V, K, 3 * K, 2);
        assert_int_equal(oracle_run(&s, unit).span_idle, 0);
        schedule_clear(&s);
        /* Published with F and B overlapped: (K-1)(F&B + B - 3W); one after the other and with
         * messages that leave in between, K-1. */
        s = generate(SCHEDULE_DUALPIPE_V, K, 3 * K, 2);
        assert_int_equal(oracle_run(&s, unit).span_idle, K - 1);
        assert_int_equal(oracle_run(&s, unit).step, 6 * 3 * K + K - 1);
        schedule_clear(&s);
    }
}

/* Bubbles with F = I = W, in slots of one pass of one of the 2K stages; 1F1B's has 6 (K - 1).
 * Published: about 2/3 of 1F1B's for v-min and about 1/2 for v-half (3K). */
static void schedule_generate__leaves_the_published_bubble_with_controllable_memory(void **state)
{
    (void)state;
    const struct oracle_times unit = {1, 2, 1, 1};
    for (int K = 2; K <= 16; K++) {
        for (int M = K; M <= 3 * K; M += K) {
            struct schedule s = generate(SCHEDULE_V_MIN, K, M, 2);
            assert_int_equal(oracle_run(&s, unit).step, 6 * M + 4 * K - 5);
            schedule_clear(&s);
            s = generate(SCHEDULE_V_HALF, K, M, 2);
            const int64_t bubble = oracle_run(&s, unit).step - 6 * M;
            assert_true(bubble <= 3 * K && bubble >= 3 * (K - 1) / 2);
            schedule_clear(&s);
        }
    }
}

/* v-min's block has no room: what a micro-batch takes in its stable phase is the longer of a rank's passes, 2 (f + i +
 * w), and of six forwards or six backwards one after the other. v-half's block has, for times like these. */
static void schedule_generate__v_min_slows_down_where_passes_differ(void **state)
{
    static const struct {
        int64_t f, i, w;
    } times[] = {
        {10, 10, 10},
        {10, 12, 8 },
        {10, 8,  8 },
        {10, 15, 10},
        {13, 10, 10},
        {10, 8,  16}
    };
    (void)state;
    for (int K = 4; K <= 12; K++) {
        for (size_t t = 0; t < sizeof times / sizeof *times; t++) {
            const int64_t f = times[t].f, i = times[t].i, w = times[t].w, sum = 2 * (f + i + w);
            const int64_t six = 6 * (f > i ? f : i);
            const struct oracle_times each = {f, i + w, i, w};
            int64_t steps[2][2];
            for (int more = 0; more < 2; more++) {
                struct schedule s = generate(SCHEDULE_V_MIN, K, (6 + 3 * more) * K, 2);
                steps[0][more] = oracle_run(&s, each).step;
                schedule_clear(&s);
                s = generate(SCHEDULE_V_HALF, K, (6 + 3 * more) * K, 2);
                steps[1][more] = oracle_run(&s, each).step;
                schedule_clear(&s);
            }
            assert_int_equal(steps[0][1] - steps[0][0], 3 * K * (sum > six ? sum : six));
            if (i <= 15 && w >= 8 && f == 10)
                assert_int_equal(steps[1][1] - steps[1][0], 3 * K * sum);
        }
    }
}

static void schedule_peak_live__is_the_published_one_when_m_is_large(void **state)
{
    (void)state;
    int peak[8];
    for (int K = 1; K <= 8; K++) {
        for (int M = 2 * K; M <= 4 * K; M += K) {
            for (int kind = 0; kind < SCHEDULE_SEARCH; kind++) {
                const int v = num_chunks[kind];
                struct schedule s = generate((enum schedule_kind)kind, K, M, v);
                schedule_peak_live(&s, peak);
                int highest = 0;
                for (int k = 0; k < K; k++) {
                    highest = peak[k] > highest ? peak[k] : highest;
                    const int want[SCHEDULE_SEARCH] = {
                        [SCHEDULE_GPIPE] = M,
                        [SCHEDULE_1F1B] = K - k,
                        [SCHEDULE_INTERLEAVED] = min_int(M * v, (v - 1) * K + 2 * (K - 1 - k) + 1),
                        [SCHEDULE_ZB_H1] = K,
                        [SCHEDULE_ZB_H2] = 2 * K - 1,
                        [SCHEDULE_ZB_V] = 2 * K,
                        [SCHEDULE_DUALPIPE_V] = 2 * K + 1,
                        [SCHEDULE_EAGER_1F1B] = min_int(M, 2 * (K - k) - 1),
                        [SCHEDULE_BREADTH_FIRST] = M * v,
                        [SCHEDULE_LOOPED_BFS] = M * v};
                    /* On one rank zb-v runs F0 F1 I W: two live. */
                    if (want[kind] > 0)
                        assert_int_equal(peak[k], kind == SCHEDULE_DUALPIPE_V
                                                      ? min_int(want[kind], 2 * M)
                                                      : want[kind]);
                }
                /* Two stages a rank; v-min: (K+4)/3 micro-batches, v-half: (K+2)/2, rounded down.
                 * 1F1B would hold K. */
                if (kind == SCHEDULE_V_MIN)
                    assert_int_equal(highest, 2 * ((K + 4) / 3));
                if (kind == SCHEDULE_V_HALF)
                    assert_int_equal(highest, 2 * ((K + 2) / 2));
                schedule_clear(&s);
            }
        }
    }
}

static void schedule_generate__refuses_absurd_counts_before_allocating(void **state)
{
    (void)state;
    const int bad[][4] = {
        {SCHEDULE_1F1B,        1000000000, 4,          1         },
        {SCHEDULE_1F1B,        0,          4,          1         },
        {SCHEDULE_1F1B,        -1,         4,          1         },
        {SCHEDULE_1F1B,        4,          0,          1         },
        {SCHEDULE_1F1B,        4,          -7,         1         },
        {SCHEDULE_1F1B,        4,          2147483647, 1         },
        {SCHEDULE_ZB_H1,       65535,      65535,      1         },
        {SCHEDULE_1F1B,        4,          4,          2         },
        {SCHEDULE_ZB_V,        4,          8,          1         },
        {SCHEDULE_INTERLEAVED, 4,          8,          0         },
        {SCHEDULE_INTERLEAVED, 4,          8,          2147483647},
        {SCHEDULE_SEARCH,      4,          8,          1         },
        {SCHEDULE_CUSTOM,      4,          8,          1         }
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct schedule s = {0};
        struct err err = {0};
        assert_int_equal(schedule_generate((enum schedule_kind)bad[i][0], bad[i][1], bad[i][2],
                                           bad[i][3], &s, &err),
                         ERR_INPUT);
        assert_null(s.ranks);
        assert_true(strlen(err.msg) > 0);
    }
    struct schedule s = {0};
    struct err err = {0};
    assert_int_equal(schedule_generate(SCHEDULE_DUALPIPE_V, 4, 7, 2, &s, &err), ERR_INFEASIBLE);
}

static void schedule_freeze__leaves_only_forwards_of_frozen_stages(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCHEDULE_SEARCH; kind++) {
        const int K = 4, M = 9, S = K * num_chunks[kind];
        for (int frozen = 0; frozen < S; frozen++) {
            for (int drop = 0; drop < 2; drop++) {
                struct schedule s = generate((enum schedule_kind)kind, K, M, num_chunks[kind]);
                struct err err = {0};
                int count[OP_KIND_COUNT] = {0};
                assert_int_equal(schedule_freeze(&s, frozen, drop == 1, &err), OK);
                assert_int_equal(schedule_check(&s, 0, &err), OK);
                assert_true(oracle_run(&s, (struct oracle_times){1, 2, 1, 1}).complete);
                for (int k = 0; k < K; k++) {
                    for (int64_t i = 0; i < s.ranks[k].num_ops; i++) {
                        const struct op op = s.ranks[k].ops[i];
                        count[op.kind]++;
                        assert_true(op.kind == OP_Z ? op.stage < frozen : op.stage >= frozen);
                        assert_false(drop && op.kind == OP_I && op.stage == frozen);
                    }
                }
                assert_int_equal(count[OP_Z], frozen * M);
                assert_int_equal(count[OP_F], (S - frozen) * M);
                assert_int_equal(count[OP_B] + count[OP_W], (S - frozen) * M);
                if (frozen > 0)
                    assert_int_equal(schedule_freeze(&s, 1, false, NULL), ERR_INPUT);
                schedule_clear(&s);
            }
        }
        struct schedule s = generate((enum schedule_kind)kind, K, M, num_chunks[kind]);
        assert_int_equal(schedule_freeze(&s, S, false, NULL), ERR_INPUT);
        assert_int_equal(schedule_freeze(&s, -1, false, NULL), ERR_INPUT);
        schedule_clear(&s);
    }
}

static bool same_lists(const struct schedule *a, const struct schedule *b)
{
    if (a->num_ranks != b->num_ranks || a->num_stages != b->num_stages ||
        a->num_microbatches != b->num_microbatches ||
        a->num_frozen_stages != b->num_frozen_stages || a->drop_first_input != b->drop_first_input)
        return false;
    for (int k = 0; k < a->num_ranks; k++)
        if (a->ranks[k].num_ops != b->ranks[k].num_ops ||
            memcmp(a->ranks[k].ops, b->ranks[k].ops,
                   (size_t)a->ranks[k].num_ops * sizeof(struct op)) != 0)
            return false;
    return memcmp(a->rank_of_stage, b->rank_of_stage, (size_t)a->num_stages * sizeof(int)) == 0;
}

static void schedule_copy__is_equal_and_independent(void **state)
{
    (void)state;
    struct schedule s = generate(SCHEDULE_ZB_V, 3, 7, 2), copy = {0};
    assert_int_equal(schedule_copy(&s, &copy, NULL), OK);
    assert_true(same_lists(&s, &copy));
    copy.ranks[0].ops[0].microbatch = 5;
    assert_false(same_lists(&s, &copy));
    schedule_clear(&s);
    schedule_clear(&s); /* safe twice */
    schedule_clear(&copy);
}

static void schedule_from_csv__reads_what_schedule_to_csv_wrote(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCHEDULE_SEARCH; kind++) {
        for (int frozen = 0; frozen < 3; frozen++) {
            struct schedule s = generate((enum schedule_kind)kind, 3, 11, num_chunks[kind]);
            struct schedule back = {0};
            struct err err = {0};
            char *csv = NULL;
            if (frozen > 0)
                assert_int_equal(schedule_freeze(&s, frozen - 1, true, &err), OK);
            assert_int_equal(schedule_to_csv(&s, &csv, &err), OK);
            assert_int_equal(schedule_from_csv(csv, "csv", &back, &err), OK);
            assert_int_equal(back.kind, SCHEDULE_CUSTOM);
            assert_true(same_lists(&s, &back));
            free(csv);
            schedule_clear(&s);
            schedule_clear(&back);
        }
    }
}

static void schedule_to_csv__writes_pytorchs_form(void **state)
{
    (void)state;
    struct schedule s = generate(SCHEDULE_1F1B, 2, 3, 1);
    char *csv = NULL;
    assert_int_equal(schedule_to_csv(&s, &csv, NULL), OK);
    assert_string_equal(csv, "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
    free(csv);
    schedule_clear(&s);
}

static void schedule_from_csv__ignores_bubbles_blanks_and_line_ends(void **state)
{
    (void)state;
    struct schedule s = {0};
    struct err err = {0};
    assert_int_equal(
        schedule_from_csv("0F0,, 0F1,,,0B0,0B1\r\n,1F0,1B0 ,1F1,1B1,,", "csv", &s, &err), OK);
    assert_int_equal(schedule_check(&s, 0, &err), OK);
    assert_int_equal(s.ranks[0].num_ops, 4);
    assert_int_equal(s.ranks[1].num_ops, 4);
    schedule_clear(&s);
}

static void schedule_from_csv__keeps_overlapped_pairs(void **state)
{
    (void)state;
    struct schedule s = {0};
    struct err err = {0};
    assert_int_equal(
        schedule_from_csv("0F0,1F0,1B0,(0F1;0B0)OVERLAP_F_B,1F1,1B1,0B1", "csv", &s, &err), OK);
    assert_int_equal(schedule_check(&s, 0, &err), OK);
    assert_int_equal(s.ranks[0].num_ops, 8);
    assert_true(op_overlapped(s.ranks[0].ops[3], OP_F) && op_overlapped(s.ranks[0].ops[4], OP_B));
    s.ranks[0].ops[3].arg = 0; /* a B without its partner */
    assert_int_equal(schedule_check(&s, 0, &err), ERR_INFEASIBLE);
    schedule_clear(&s);
    /* A backward that needs the forward beside it does not overlap with it. */
    assert_int_equal(
        schedule_from_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1", "csv", &s, &err), OK);
    assert_int_equal(schedule_check(&s, 0, &err), ERR_INFEASIBLE);
    schedule_clear(&s);
}

/* Only a whole list is renumbered: what is written is read again as it is. */
static void schedule_from_csv__reads_a_list_of_a_part_as_it_is(void **state)
{
    static const char *const lists[] = {"0F0,0F2,0B1\n", "0F1,0F2,0B1\n", "0F0,0F1,0F2,0B2,0B0\n"};
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct schedule s = {0};
        char *csv = NULL;
        assert_int_equal(schedule_from_csv(lists[i], "csv", &s, NULL), OK);
        assert_int_equal(schedule_to_csv(&s, &csv, NULL), OK);
        assert_string_equal(csv, lists[i]);
        free(csv);
        schedule_clear(&s);
    }
}

/* As torch 2.15 writes ScheduleLoopedBFS for 2 ranks, 4 stages and 3 micro-batches, and the last rank of
 * Schedule1F1B. Backwards that descend on one stage only are no order of anybody's. */
static void schedule_from_csv__reads_pytorchs_lists_as_it_runs_them(void **state)
{
    static const struct {
        const char *csv;
        int microbatches, live;
        bool right;
    } lists[] = {
        {"0F0,0F1,0F2,2F0,2F1,2F2,2B2,2B1,2B0,0B2,0B1,0B0\n"
         "1F0,1F1,1F2,3F0,3F1,3F2,3B2,3B1,3B0,1B2,1B1,1B0\n", 3, 6, true },
        {"0F0,0F1,0B0,0F2,0B1,0B2\n1F1,1B0,1F2,1B1,1F3,1B2\n",         3, 2, true },
        {"0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,"
         "0RESHARD\n"
         "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,1WAIT_SEND_"
         "B0\n",                                              1, 1, true },
        {"0F0,0F1,0B1,0B0\n1F0,1F1,1B0,1B1\n",                         2, 2, false},
        {"0F0,0F1,0B0,0B1\n1F1,1B1\n",                                 2, 2, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct schedule s = {0};
        struct err err = {0};
        int peak[2];
        assert_int_equal(schedule_from_csv(lists[i].csv, "csv", &s, &err), OK);
        assert_int_equal(schedule_check(&s, 0, &err), lists[i].right ? OK : ERR_INFEASIBLE);
        assert_int_equal(s.num_microbatches, lists[i].microbatches);
        schedule_peak_live(&s, peak);
        assert_int_equal(peak[0], lists[i].live);
        schedule_clear(&s);
    }
}

/* What PyTorch makes for 2 ranks, 4 stages and 3 micro-batches is our looped-bfs when read. */
static void schedule_generate__looped_bfs_is_pytorchs(void **state)
{
    struct schedule theirs = {0}, ours = generate(SCHEDULE_LOOPED_BFS, 2, 3, 2);
    (void)state;
    assert_int_equal(schedule_from_csv("0F0,0F1,0F2,2F0,2F1,2F2,,,2B2,2B1,2B0,0B2,0B1,0B0\n"
                                       ",1F0,1F1,1F2,3F0,3F1,3F2,3B2,3B1,3B0,1B2,1B1,1B0\n",
                                       "csv", &theirs, NULL),
                     OK);
    assert_true(same_lists(&ours, &theirs));
    schedule_clear(&theirs);
    schedule_clear(&ours);
}

static void schedule_from_csv__refuses_malformed_text_when_read(void **state)
{
    (void)state;
    const char *const bad[] = {"",
                               "\n",
                               ",,,\n",
                               "0F",
                               "F0",
                               "0X0",
                               "0F0 0B0",
                               "0F0;0B0",
                               "-1F0",
                               "0F-1",
                               "0F99999999999999999999",
                               "99999F0",
                               "65535F0,65535B0",
                               "0F2147483647",
                               "0F2000000000,0B0",
                               "65534F0,0B0",
                               "0F0,0B0\n\n\n\n",
                               "0F0,0SEND_X0",
                               "0F0,SEND_F0",
                               "0F0,0SEND_F0x",
                               "(0F0;0B0)",
                               "(0F0)OVERLAP_F_B",
                               "(;)OVERLAP_F_B",
                               ")OVERLAP_F_B",
                               "(0F0;0B0;0F1)OVERLAP_F_B"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct schedule s = {0};
        struct err err = {0};
        if (schedule_from_csv(bad[i], "csv", &s, &err) != ERR_INPUT || err.msg[0] == '\0')
            fail_msg("'%s' was read", bad[i]);
        assert_null(s.ranks);
    }
    struct schedule s = {0};
    struct err err = {0};
    assert_int_equal(schedule_from_csv("0F0,0B0\n1F0,1Q0", "csv", &s, &err), ERR_INPUT);
    assert_string_equal(err.msg, "csv: row 2, cell 2: '1Q0' is no op");
}

/* tests/reference/schedules.py wrote the file from PyTorch's own schedule classes. PyTorch's
 * interleaved zero-bubble schedule with one chunk is ZB-H1. */
static void schedule_generate__gives_pytorchs_order_in_every_golden_case(void **state)
{
    (void)state;
    FILE *file = fopen("tests/golden/torch_schedules.txt", "r");
    static char line[1 << 16];
    struct schedule s = {0};
    int rank = 0, compared = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        char name[64];
        int K, M, v;
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "# %63s %d %d %d", name, &K, &M, &v) == 4) {
            enum schedule_kind kind = SCHEDULE_ZB_H1;
            if (strcmp(name, "interleaved-zb") != 0)
                assert_int_equal(schedule_kind_parse(name, &kind, NULL), OK);
            schedule_clear(&s);
            s = generate(kind, K, M, v);
            rank = 0;
        } else if (line[0] != '#') {
            char *csv = NULL;
            assert_true(rank < s.num_ranks);
            assert_int_equal(schedule_to_csv(&s, &csv, NULL), OK);
            const char *row = csv;
            for (int k = 0; k < rank; k++)
                row = strchr(row, '\n') + 1;
            if (line[0] != '-') {
                assert_int_equal(strcspn(row, "\n"), strlen(line));
                assert_memory_equal(row, line, strlen(line));
                compared++;
            }
            rank++;
            free(csv);
        }
    }
    assert_int_equal(compared, 87);
    schedule_clear(&s);
    fclose(file);
}

static void schedule_kind_parse__knows_every_name_and_suggests(void **state)
{
    (void)state;
    for (int i = 0; i < SCHEDULE_KIND_COUNT; i++) {
        enum schedule_kind kind;
        assert_int_equal(
            schedule_kind_parse(schedule_kind_name((enum schedule_kind)i), &kind, NULL), OK);
        assert_int_equal(kind, i);
        assert_non_null(schedule_kind_about(kind)); /* help prints it */
    }
    enum schedule_kind kind;
    struct err err = {0};
    assert_int_equal(schedule_kind_parse("gpip", &kind, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "gpipe"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedule_generate__is_complete_and_ascending_for_all_small_counts),
        cmocka_unit_test(schedule_generate__takes_the_published_time_when_stages_are_equal),
        cmocka_unit_test(schedule_generate__leaves_the_published_bubble_with_controllable_memory),
        cmocka_unit_test(schedule_generate__v_min_slows_down_where_passes_differ),
        cmocka_unit_test(schedule_peak_live__is_the_published_one_when_m_is_large),
        cmocka_unit_test(schedule_generate__refuses_absurd_counts_before_allocating),
        cmocka_unit_test(schedule_freeze__leaves_only_forwards_of_frozen_stages),
        cmocka_unit_test(schedule_copy__is_equal_and_independent),
        cmocka_unit_test(schedule_from_csv__reads_what_schedule_to_csv_wrote),
        cmocka_unit_test(schedule_to_csv__writes_pytorchs_form),
        cmocka_unit_test(schedule_from_csv__ignores_bubbles_blanks_and_line_ends),
        cmocka_unit_test(schedule_from_csv__keeps_overlapped_pairs),
        cmocka_unit_test(schedule_from_csv__reads_pytorchs_lists_as_it_runs_them),
        cmocka_unit_test(schedule_generate__looped_bfs_is_pytorchs),
        cmocka_unit_test(schedule_from_csv__reads_a_list_of_a_part_as_it_is),
        cmocka_unit_test(schedule_from_csv__refuses_malformed_text_when_read),
        cmocka_unit_test(schedule_generate__gives_pytorchs_order_in_every_golden_case),
        cmocka_unit_test(schedule_kind_parse__knows_every_name_and_suggests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
