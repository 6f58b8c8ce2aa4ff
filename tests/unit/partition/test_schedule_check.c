/* The proof: thousands of mutants of good lists, judged by two slow oracles. */
#include "partition/schedule/schedule.h"
#include "tests/unit/plan_case.h"
#include "tests/unit/schedule_oracle.h"
#include "tests/unit/test.h"

static struct schedule generate(enum schedule_kind kind, int K, int M)
{
    struct schedule schedule = {0};
    assert_int_equal(schedule_generate(kind, K, M, schedule_default_chunks(kind), &schedule, NULL),
                     OK);
    return schedule;
}

/* A copy with room for one more op on each rank. */
static struct schedule copy_with_room(const struct schedule *src)
{
    struct schedule copy = {0}, roomy = {0};
    assert_int_equal(schedule_copy(src, &copy, NULL), OK);
    int64_t room[16];
    assert_true(src->num_ranks <= 16);
    for (int k = 0; k < src->num_ranks; k++)
        room[k] = src->ranks[k].num_ops + 1;
    assert_int_equal(schedule_alloc(src->kind, src->num_ranks, src->num_stages,
                                    src->num_microbatches, room, &roomy, NULL),
                     OK);
    for (int k = 0; k < src->num_ranks; k++) {
        roomy.ranks[k].num_ops = src->ranks[k].num_ops;
        memcpy(roomy.ranks[k].ops, src->ranks[k].ops,
               (size_t)src->ranks[k].num_ops * sizeof(struct op));
    }
    free(copy.ranks);
    free(copy.block);
    copy.ranks = roomy.ranks;
    copy.block = roomy.block;
    free(roomy.rank_of_stage);
    return copy;
}

enum { DROP, SWAP_NEIGHBOURS, SWAP, DUPLICATE, MOVE_RANK, CHANGE, INSERT_NEXT, MUTATIONS };

static void insert(struct rank_ops *rank, int64_t at, struct op op)
{
    memmove(rank->ops + at + 1, rank->ops + at, (size_t)(rank->num_ops - at) * sizeof op);
    rank->ops[at] = op;
    rank->num_ops++;
}

static void drop(struct rank_ops *rank, int64_t at)
{
    memmove(rank->ops + at, rank->ops + at + 1,
            (size_t)(rank->num_ops - at - 1) * sizeof rank->ops[0]);
    rank->num_ops--;
}

static void mutate(struct schedule *s, int mutation, uint64_t *seed)
{
    const int k = (int)(case_random(seed) % (uint64_t)s->num_ranks);
    struct rank_ops *rank = &s->ranks[k];
    const int64_t n = rank->num_ops;
    if (n < 2)
        return;
    int64_t i = (int64_t)(case_random(seed) % (uint64_t)n);
    int64_t j = (int64_t)(case_random(seed) % (uint64_t)n);
    const struct op op = rank->ops[i];
    switch (mutation) {
    case DROP:
        drop(rank, i);
        break;
    case SWAP_NEIGHBOURS:
        i = i == n - 1 ? i - 1 : i;
        j = i + 1; /* fall through */
    case SWAP: {
        const struct op kept = rank->ops[i];
        rank->ops[i] = rank->ops[j];
        rank->ops[j] = kept;
        break;
    }
    case DUPLICATE:
        insert(rank, j, op);
        break;
    case INSERT_NEXT: { /* one bucket, edge or micro-batch more, right behind */
        struct op next = op;
        if (next.kind >= OP_SEND_ACT && next.kind <= OP_ALLREDUCE)
            next.arg++;
        else
            next.microbatch++;
        insert(rank, i + 1, next);
        break;
    }
    case MOVE_RANK: {
        struct rank_ops *to = &s->ranks[(k + 1) % s->num_ranks];
        drop(rank, i);
        insert(to, j < to->num_ops ? j : to->num_ops, op);
        break;
    }
    default:
        switch (case_random(seed) % 4) {
        case 0:
            rank->ops[i].microbatch = (int32_t)(case_random(seed) % 8) - 2;
            break;
        case 1:
            rank->ops[i].stage = (uint16_t)(case_random(seed) % ((uint64_t)s->num_stages + 1));
            break;
        case 2:
            rank->ops[i].kind = (uint8_t)(case_random(seed) % (OP_KIND_COUNT + 1));
            break;
        default:
            rank->ops[i].arg = (uint8_t)(rank->ops[i].arg + 1);
            break;
        }
        break;
    }
}

/* --- the oracle of lowered lists: pairs of ops, nothing else ---------------------------------- */

struct placed {
    struct op op;
    int rank;
    bool done;
};

static int edge_of(const struct schedule *s, struct op op)
{
    const bool leaving = op.kind == OP_SEND_ACT || op.kind == OP_RECV_GRAD;
    int n = 0;
    for (int e = 0; e < s->num_edges; e++)
        if ((leaving ? s->edges[e].from : s->edges[e].to) == op.stage && n++ == op.arg)
            return e;
    return -1;
}

/* Must b have run before a may? */
static bool before(const struct schedule *s, const struct placed *pa, const struct placed *pb)
{
    const struct op a = pa->op, b = pb->op;
    const bool same_stage = a.stage == b.stage, same = same_stage && a.microbatch == b.microbatch;
    const bool forward_a = a.kind == OP_F || (a.kind == OP_Z && a.microbatch >= 0);
    const bool forward_b = b.kind == OP_F || (b.kind == OP_Z && b.microbatch >= 0);
    const bool cut = s->drop_first_input && a.stage == s->num_frozen_stages;
    const bool input_a = a.kind == OP_B || a.kind == OP_I || (a.kind == OP_W && cut);
    const bool input_b = b.kind == OP_B || b.kind == OP_I;
    const bool weight_a = a.kind == OP_B || a.kind == OP_W;
    const bool weight_b = b.kind == OP_B || b.kind == OP_W;
    if (forward_a) {
        if (b.kind == OP_Z && b.microbatch == OP_WHOLE_BATCH)
            return same_stage;
        for (int e = 0; forward_b && e < s->num_edges; e++)
            if (s->edges[e].from == b.stage && s->edges[e].to == a.stage &&
                a.microbatch == b.microbatch && pa->rank == pb->rank)
                return true;
        return same && (b.kind == OP_RECV_ACT || b.kind == OP_C);
    }
    if (input_a || weight_a) {
        for (int e = 0; input_a && input_b && e < s->num_edges; e++)
            if (s->edges[e].from == a.stage && s->edges[e].to == b.stage && s->edges[e].grad &&
                a.microbatch == b.microbatch && pa->rank == pb->rank)
                return true;
        if (same_stage && b.microbatch < a.microbatch &&
            ((input_a && input_b) || (weight_a && weight_b)))
            return true;
        return same && (b.kind == OP_F || (input_a && b.kind == OP_R) ||
                        (input_a && b.kind == OP_RECV_GRAD) || (a.kind == OP_W && b.kind == OP_I));
    }
    switch (a.kind) {
    case OP_R:
        return same && b.kind == OP_F;
    case OP_P:
        return a.microbatch == OP_WHOLE_BATCH
                   ? same_stage && b.kind == OP_Z && b.microbatch == OP_WHOLE_BATCH
                   : same && forward_b;
    case OP_SEND_ACT:
        return same && forward_b;
    case OP_SEND_GRAD:
        return same && input_b;
    case OP_RECV_ACT:
        return b.kind == OP_SEND_ACT && a.microbatch == b.microbatch &&
               edge_of(s, a) == edge_of(s, b);
    case OP_RECV_GRAD:
        return b.kind == OP_SEND_GRAD && a.microbatch == b.microbatch &&
               edge_of(s, a) == edge_of(s, b);
    case OP_ALLREDUCE:
        return same_stage && (weight_b || (b.kind == OP_ALLREDUCE && b.arg < a.arg));
    case OP_TIED: /* of both ends */
        return (pa->rank == pb->rank ||
                s->rank_of_stage[a.stage ? 0 : s->num_stages - 1] == pb->rank) &&
               (weight_b || b.kind == OP_ALLREDUCE);
    case OP_NORM:
        return pa->rank == pb->rank && (weight_b || b.kind == OP_ALLREDUCE || b.kind == OP_TIED);
    case OP_UPDATE:
        return (same_stage && (weight_b || b.kind == OP_ALLREDUCE)) ||
               (pa->rank == pb->rank && (b.kind == OP_NORM || b.kind == OP_TIED));
    default:
        return false;
    }
}

static int compare_ops(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct op));
}

/* An op without what does not matter: arg but for messages and buckets, the stage of NORM within
 * its rank, and whether a stage without input half writes its backward B or W. */
static struct op normal(const struct schedule *s, int rank, struct op op)
{
    if (op.kind < OP_SEND_ACT || op.kind > OP_ALLREDUCE)
        op.arg = 0;
    if (op.kind == OP_NORM && op.stage < s->num_stages && s->rank_of_stage[op.stage] == rank)
        op.stage = UINT16_MAX;
    if (op.kind == OP_W && s->drop_first_input && op.stage == s->num_frozen_stages)
        op.kind = OP_B;
    return op;
}

/* Does mutant hold exactly the ops of good on each rank? */
static bool same_ops(const struct schedule *good, const struct schedule *mutant)
{
    for (int k = 0; k < good->num_ranks; k++) {
        const size_t n = (size_t)good->ranks[k].num_ops;
        struct op a[512], b[512];
        assert_true(n <= 512);
        if (mutant->ranks[k].num_ops != good->ranks[k].num_ops)
            return false;
        for (size_t i = 0; i < n; i++) {
            a[i] = normal(good, k, good->ranks[k].ops[i]);
            b[i] = normal(mutant, k, mutant->ranks[k].ops[i]);
        }
        qsort(a, n, sizeof a[0], compare_ops);
        qsort(b, n, sizeof b[0], compare_ops);
        if (memcmp(a, b, n * sizeof a[0]) != 0)
            return false;
    }
    return true;
}

/* Whether every F that overlaps has a B that overlaps right behind it, and the other way round. */
static bool pairs_match(const struct schedule *s)
{
    for (int k = 0; k < s->num_ranks; k++) {
        const struct rank_ops *rank = &s->ranks[k];
        bool open = false;
        for (int64_t i = 0; i < rank->num_ops; i++) {
            if (open != op_overlapped(rank->ops[i], OP_B))
                return false;
            open = op_overlapped(rank->ops[i], OP_F);
        }
        if (open)
            return false;
    }
    return true;
}

static bool lowered_runs(const struct schedule *s)
{
    static struct placed all[2048];
    int total = 0, first[16], done[16] = {0};
    for (int k = 0; k < s->num_ranks; k++) {
        first[k] = total;
        for (int64_t i = 0; i < s->ranks[k].num_ops; i++) {
            assert_true(total < 2048);
            all[total++] = (struct placed){.op = s->ranks[k].ops[i], .rank = k};
        }
    }
    int left = total;
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < s->num_ranks; k++) {
            for (; done[k] < s->ranks[k].num_ops; done[k]++, left--, moved = true) {
                struct placed *next = &all[first[k] + done[k]];
                bool may = true;
                for (int i = 0; i < total && may; i++)
                    may = all[i].done || !before(s, next, &all[i]);
                if (!may)
                    break;
                next->done = true;
            }
        }
    }
    return left == 0;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void schedule_check__agrees_with_the_oracle_on_mutants_of_compute_lists(void **state)
{
    (void)state;
    uint64_t seed = 1;
    int rejected = 0, harmless = 0;
    for (int round = 0; round < 24; round++) {
        for (int kind = 0; kind < SCHEDULE_SEARCH; kind++) {
            const int K = 1 + (int)(case_random(&seed) % 4);
            const int M = 2 * K + (int)(case_random(&seed) % 4);
            struct schedule good = generate((enum schedule_kind)kind, K, M);
            if (round % 2) {
                const int frozen = (int)(case_random(&seed) % (uint64_t)good.num_stages);
                assert_int_equal(schedule_freeze(&good, frozen, round % 4 == 1, NULL), OK);
            }
            for (int i = 0; i < 120; i++) {
                struct schedule mutant = copy_with_room(&good);
                struct err err = {0};
                mutate(&mutant, i % MUTATIONS, &seed);
                const bool runs = pairs_match(&mutant) &&
                                  oracle_run(&mutant, (struct oracle_times){1, 2, 1, 1}).complete;
                const enum status rc = schedule_check(&mutant, 0, &err);
                if ((rc == OK) != runs || (rc != OK && rc != ERR_INFEASIBLE)) {
                    fail_msg("mutation %d of %s: oracle says %d, check '%s'", i % MUTATIONS,
                             schedule_kind_name((enum schedule_kind)kind), runs, err.msg);
                }
                assert_true(runs || strlen(err.msg) > 0);
                rejected += !runs;
                harmless += runs;
                schedule_clear(&mutant);
            }
            schedule_clear(&good);
        }
    }
    print_message("%d mutants rejected, %d harmless\n", rejected, harmless);
    assert_true(rejected > 10000 && harmless > 500);
}

static void schedule_check__agrees_with_the_oracle_on_mutants_of_lowered_lists(void **state)
{
    (void)state;
    uint64_t seed = 7;
    int rejected = 0, harmless = 0;
    for (int round = 0; round < 60; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        plan_case_random(&c, &seed, 3, 5);
        if (plan_case_lower(&c, &err) != OK)
            fail_msg("%s", err.msg);
        assert_true(lowered_runs(&c.full));
        for (int i = 0; i < 60; i++) {
            struct schedule mutant = copy_with_room(&c.full);
            mutate(&mutant, i % MUTATIONS, &seed);
            const bool runs =
                same_ops(&c.full, &mutant) && pairs_match(&mutant) && lowered_runs(&mutant);
            err = (struct err){0};
            const enum status rc = schedule_check(&mutant, 0, &err);
            if ((rc == OK) != runs || (rc != OK && rc != ERR_INFEASIBLE)) {
                fail_msg("round %d mutation %d of %s: oracle says %d, check '%s'", round,
                         i % MUTATIONS, schedule_kind_name(c.plan.schedule), runs, err.msg);
            }
            rejected += !runs;
            harmless += runs;
            schedule_clear(&mutant);
        }
        plan_case_clear(&c);
    }
    print_message("%d mutants rejected, %d harmless\n", rejected, harmless);
    assert_true(rejected > 2000 && harmless > 100);
}

static int64_t find_kind(const struct rank_ops *rank, enum op_kind kind)
{
    int64_t i = rank->num_ops - 1;
    while (i >= 0 && rank->ops[i].kind != kind)
        i--;
    assert_true(i >= 0);
    return i;
}

static void swap(struct rank_ops *rank, int64_t i, int64_t j)
{
    const struct op kept = rank->ops[i];
    rank->ops[i] = rank->ops[j];
    rank->ops[j] = kept;
}

/* Both ends meet in TIED, with all their backwards behind them and their updates before them. */
static void schedule_check__wants_tied_tables_added_between_backward_and_update(void **state)
{
    (void)state;
    uint64_t seed = 3;
    struct plan_case c = {0};
    struct err err = {0};
    do {
        plan_case_clear(&c);
        plan_case_random(&c, &seed, 2, 3);
        case_must(plan_case_lower(&c, &err), &err);
    } while (!c.full.tied || c.plan.schedule != SCHEDULE_1F1B || c.plan.num_pipelines > 1 ||
             c.plan.clip || !c.full.lowered[0].update);
    for (int n = 0; n < 6; n++) {
        static const char *const says[] = {NULL,
                                           "rank 0: 0UPDATE before 0TIED",
                                           "deadlock: ",
                                           "rank 1 has no 1TIED",
                                           "rank 1: 1TIED twice",
                                           "rank 0: unexpected 0TIED, the stage shares no table"};
        struct schedule list = copy_with_room(&c.full);
        struct rank_ops *first = &list.ranks[0], *last = &list.ranks[1];
        const int64_t tied = find_kind(last, OP_TIED);
        switch (n) {
        case 1:
            swap(first, find_kind(first, OP_TIED), find_kind(first, OP_UPDATE));
            break;
        case 2: /* the other end needs this gradient to get there */
            swap(last, tied, find_kind(last, OP_SEND_GRAD));
            break;
        case 3:
            drop(last, tied);
            break;
        case 4:
            insert(last, tied, last->ops[tied]);
            break;
        case 5:
            list.tied = false;
            break;
        default:
            break;
        }
        err = (struct err){0};
        assert_int_equal(schedule_check(&list, 0, &err), says[n] ? ERR_INFEASIBLE : OK);
        if (says[n] && strncmp(err.msg, says[n], strlen(says[n])) != 0)
            fail_msg("%s", err.msg);
        schedule_clear(&list);
    }
    plan_case_clear(&c);
}

/* The norm counts the tied table's gradient of both ends. */
static void schedule_check__wants_the_norm_after_the_tied_table(void **state)
{
    (void)state;
    uint64_t seed = 3;
    struct plan_case c = {0};
    struct err err = {0};
    do {
        plan_case_clear(&c);
        plan_case_random(&c, &seed, 2, 3);
        case_must(plan_case_lower(&c, &err), &err);
    } while (!c.full.tied || !c.full.norm);
    assert_int_equal(schedule_check(&c.full, 0, &err), OK);
    struct rank_ops *first = &c.full.ranks[c.full.rank_of_stage[0]];
    swap(first, find_kind(first, OP_TIED), find_kind(first, OP_NORM));
    assert_int_equal(schedule_check(&c.full, 0, &err), ERR_INFEASIBLE);
    plan_case_clear(&c);
}

/* Run-then-send with a bound, by sweeps over explicit counts: the second answer about deadlock. */
static bool runs_with_buffers(const struct schedule *s, int limit)
{
    enum { MAX = 64 };
    int act[MAX] = {0}, grad[MAX] = {0}; /* in the buffer that leaves the stage */
    bool sent_act[MAX][MAX] = {{0}}, sent_grad[MAX][MAX] = {{0}};
    int64_t next[MAX] = {0};
    bool owes[MAX] = {0}; /* the op ran, its message is not placed */
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < s->num_ranks; k++) {
            if (next[k] == s->ranks[k].num_ops)
                continue;
            const struct op op = s->ranks[k].ops[next[k]];
            const int t = op.stage, m = op.microbatch, length = s->num_stages;
            const bool starts = t == 0, ends = t == length - 1;
            const bool forward = op.kind == OP_F, backward = op.kind == OP_B || op.kind == OP_I;
            if (!owes[k]) {
                if ((forward && !starts && !sent_act[t - 1][m]) ||
                    (backward && !ends && !sent_grad[t + 1][m]))
                    continue;
                if (op_overlapped(op, OP_F)) { /* the B behind it starts with it */
                    const struct op b = s->ranks[k].ops[next[k] + 1];
                    if (b.stage != length - 1 && !sent_grad[b.stage + 1][b.microbatch])
                        continue;
                }
                if (forward && !starts && s->rank_of_stage[t - 1] != k)
                    act[t - 1]--;
                if (backward && !ends && s->rank_of_stage[t + 1] != k)
                    grad[t + 1]--;
                owes[k] = true;
                moved = true;
            }
            const bool far = forward ? !ends && s->rank_of_stage[t + 1] != k
                                     : backward && !starts && s->rank_of_stage[t - 1] != k;
            int *used = forward ? &act[t] : &grad[t];
            if (far && *used >= limit)
                continue;
            *used += far;
            sent_act[t][m] = sent_act[t][m] || forward;
            sent_grad[t][m] = sent_grad[t][m] || backward;
            owes[k] = false;
            next[k]++;
            moved = true;
        }
    }
    for (int k = 0; k < s->num_ranks; k++)
        if (next[k] < s->ranks[k].num_ops)
            return false;
    return true;
}

static void schedule_check__finds_deadlock_when_buffers_are_bounded(void **state)
{
    (void)state;
    int stuck = 0, fine = 0;
    for (int kind = 0; kind < SCHEDULE_SEARCH; kind++) {
        for (int K = 1; K <= 5; K++) {
            for (int M = 2 * K; M <= 2 * K + 5; M++) {
                struct schedule s = generate((enum schedule_kind)kind, K, M);
                for (int limit = 1; limit <= 6; limit++) {
                    struct err err = {0};
                    const bool runs = runs_with_buffers(&s, limit);
                    assert_int_equal(schedule_check(&s, limit, &err), runs ? OK : ERR_INFEASIBLE);
                    assert_true(runs || strncmp(err.msg, "deadlock: ", 10) == 0);
                    stuck += !runs;
                    fine += runs;
                }
                schedule_clear(&s);
            }
        }
    }
    assert_true(stuck > 10 && fine > 500);
}

static void schedule_check__names_the_ops_when_it_rejects(void **state)
{
    (void)state;
    const struct {
        const char *csv, *reason;
    } bad[] = {
        {"0F0,0B0\n1B0,1F0",                                 "rank 1: 1B0 before 1F0"                     },
        {"0F0,0B0\n1F0,1B0,1F0",                             "rank 1: 1F0 twice"                          },
        {"0F0,0B0,0B0\n1F0,1B0",                             "rank 0: 0B0 twice"                          },
        {"0F0,0B0\n1F0",                                     "rank 1 has no 1B0"                          },
        {"0F0,0I0\n1F0,1B0",                                 "rank 0 has no 0W0"                          },
        {"0F0,0F1,0B1,0B0\n1F0,1F1,1B0,1B1",                 "rank 0: 0B1 before 0B0"                     },
        {"0F0,0B0,1B0\n1F0",                                 "rank 1: 1F0 belongs to rank 0"              },
        {"0Z0,0B0\n1F0,1B0",                                 "rank 0: unexpected 0B0, the stage is frozen"},
        {"0F0,3F0,0B0,3B0\n1F0,2F0,1B0,2B0",                 "rank 1: 1B0 before 2B0"                     },
        {"0F0,0F1,0B0,0B1,2F0,2B0,2F1,2B1\n1F0,1B0,1F1,1B1",
         "deadlock: rank 0 stands at 0B0 for 1B0 of rank 1; rank 1 stands at 1B0 for 2B0 of rank "
         "0"                                                                                              },
        {"0F0,2F1,2F0,0F1,2B0,2B1,0B0,0B1\n1F0,1F1,1B0,1B1",
         "deadlock: rank 0 stands at 2F1 for 1F1 of rank 1; rank 1 stands at 1F1 for 0F1 of rank "
         "0"                                                                                              },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct schedule s = {0};
        struct err err = {0};
        assert_int_equal(schedule_from_csv(bad[i].csv, "csv", &s, &err), OK);
        const enum status rc = schedule_check(&s, 0, &err);
        if (rc != ERR_INFEASIBLE || strcmp(err.msg, bad[i].reason) != 0)
            fail_msg("case %zu: '%s', want '%s'", i, err.msg, bad[i].reason);
        schedule_clear(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedule_check__agrees_with_the_oracle_on_mutants_of_compute_lists),
        cmocka_unit_test(schedule_check__agrees_with_the_oracle_on_mutants_of_lowered_lists),
        cmocka_unit_test(schedule_check__wants_tied_tables_added_between_backward_and_update),
        cmocka_unit_test(schedule_check__wants_the_norm_after_the_tied_table),
        cmocka_unit_test(schedule_check__finds_deadlock_when_buffers_are_bounded),
        cmocka_unit_test(schedule_check__names_the_ops_when_it_rejects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
