#include "profiles/store/trace.h"

#include "profiles/json/json.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static const struct op_row rows[] = {
    {0, 0, 0, 0,    1500, {.microbatch = 0, .stage = 0, .kind = OP_F}                  },
    {0, 0, 0, 1500, 1500, {.microbatch = 0, .stage = 0, .kind = OP_SEND_ACT}           },
    {0, 0, 1, 2000, 4123, {.microbatch = 0, .stage = 1, .kind = OP_B}                  },
    {0, 1, 1, 4123, 5000, {.microbatch = OP_WHOLE_BATCH, .stage = 1, .kind = OP_UPDATE}},
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

static char *traced(const char *title)
{
    char *text = NULL;
    size_t size = 0;
    struct trace *trace = NULL;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(trace_begin(out, title, &trace, NULL), OK);
    trace_ops(trace, rows, NUM_ROWS, 0);
    trace_ops(trace, rows, 1, 1000000);
    assert_int_equal(trace_end(trace, NULL), OK);
    fclose(out);
    return text;
}

static struct json *event(struct json *events, const char *phase, const char *name, int nth)
{
    for (struct json *e = json_first(events); e; e = json_next(e))
        if (strcmp(json_string(json_get(e, "ph")), phase) == 0 &&
            strcmp(json_string(json_get(e, "name")), name) == 0 && nth-- == 0)
            return e;
    return NULL;
}

/* The name of the thread that an event is on. */
static const char *thread_name(struct json *events, const struct json *of)
{
    for (struct json *e = json_first(events); e; e = json_next(e))
        if (strcmp(json_string(json_get(e, "name")), "thread_name") == 0 &&
            json_number(json_get(e, "pid")) == json_number(json_get(of, "pid")) &&
            json_number(json_get(e, "tid")) == json_number(json_get(of, "tid")))
            return json_string(json_path(e, "args.name"));
    return "";
}

static void trace_ops__writes_strict_json_with_exact_times(void **state)
{
    (void)state;
    struct json *root = NULL;
    struct err err = {0};
    char *text = traced("simulated");
    if (json_parse(text, "trace", &root, &err) != OK)
        fail_msg("%s", err.msg);
    struct json *events = json_get(root, "traceEvents"), *e = event(events, "X", "B0 s1", 0);
    assert_non_null(e);
    assert_true(json_number(json_get(e, "ts")) == 2.0);
    assert_true(json_number(json_get(e, "dur")) == 2.123);
    assert_int_equal((int)json_number(json_get(e, "pid")), 1);
    assert_string_equal(thread_name(events, e), "rank 1");
    assert_string_equal(json_string(json_path(e, "args.op")), "B");
    /* Messages have a thread of their own, so that overlap is seen. */
    e = event(events, "X", "SEND_ACT0 s0", 0);
    assert_string_equal(thread_name(events, e), "rank 0 sends");
    assert_string_equal(json_string(json_get(e, "cat")), "communication");
    e = event(events, "X", "F0 s0", 1);
    assert_true(json_number(json_get(e, "ts")) == 1000.0);
    assert_non_null(event(events, "X", "UPDATE s1", 0));
    /* Two replicas are processes; each is named once. */
    assert_non_null(event(events, "M", "process_name", 1));
    assert_null(event(events, "M", "process_name", 2));
    /* rank 0, its messages, rank 1 of replica 0; rank 1 of replica 1. */
    assert_non_null(event(events, "M", "thread_name", 3));
    assert_null(event(events, "M", "thread_name", 4));
    json_free(root);
    free(text);
}

static void trace_ops__joins_each_send_with_its_receive(void **state)
{
    (void)state;
    static const struct op_row messages[] = {
        {7, 1, 0, 100, 100, {.microbatch = 3, .stage = 0, .kind = OP_SEND_ACT}          },
        {7, 1, 1, 50,  250, {.microbatch = 3, .stage = 1, .kind = OP_RECV_ACT}          },
        {7, 1, 1, 300, 300, {.microbatch = 3, .stage = 1, .kind = OP_SEND_GRAD}         },
        {7, 1, 0, 250, 400, {.microbatch = 3, .stage = 0, .kind = OP_RECV_GRAD}         },
        {7, 1, 0, 500, 500, {.microbatch = 3, .stage = 0, .kind = OP_SEND_ACT, .arg = 1}},
        {7, 1, 0, 600, 600, {.microbatch = 4, .stage = 0, .kind = OP_SEND_ACT}          },
    };
    char *text = NULL;
    size_t size = 0;
    struct trace *trace = NULL;
    struct json *root = NULL;
    int64_t ids[4];
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(trace_begin(out, "simulated", &trace, NULL), OK);
    trace_ops(trace, messages, sizeof messages / sizeof *messages, 0);
    assert_int_equal(trace_end(trace, NULL), OK);
    fclose(out);
    assert_int_equal(json_parse(text, "trace", &root, NULL), OK);
    struct json *events = json_get(root, "traceEvents");
    struct json *ends[] = {event(events, "s", "activation", 0), event(events, "f", "activation", 0),
                           event(events, "s", "gradient", 0), event(events, "f", "gradient", 0)};
    for (int i = 0; i < 4; i++) {
        assert_non_null(ends[i]);
        assert_true(json_int64(json_get(ends[i], "id"), &ids[i]));
        assert_int_equal((int)json_number(json_get(ends[i], "pid")), 2);
    }
    assert_true(ids[0] == ids[1] && ids[2] == ids[3] && ids[0] != ids[2]);
    /* The receive waits from 50 on, which is a slice of its own; the arrow ends in the other one. */
    assert_true(json_number(json_get(event(events, "X", "wait RECV_ACT3 s1", 0), "dur")) == 0.05);
    assert_true(json_number(json_get(event(events, "X", "RECV_ACT3 s1", 0), "ts")) == 0.1);
    assert_true(json_number(json_get(ends[1], "ts")) == 0.249);
    assert_string_equal(json_string(json_get(ends[1], "bp")), "e");
    /* The skip edge has none; the next micro-batch has another number. */
    struct json *next = event(events, "s", "activation", 1);
    int64_t id = ids[0];
    assert_true(json_int64(json_get(next, "id"), &id) && id != ids[0]);
    assert_null(event(events, "s", "activation", 2));
    json_free(root);
    free(text);
}

static void trace_ops__ends_arrows_at_passes_without_receives(void **state)
{
    (void)state;
    static const struct op_row simulated[] = {
        {0, 0, 0, 0,   100, {.microbatch = 0, .stage = 0, .kind = OP_F}       },
        {0, 0, 0, 100, 150, {.microbatch = 0, .stage = 0, .kind = OP_SEND_ACT}},
        {0, 0, 1, 150, 250, {.microbatch = 0, .stage = 1, .kind = OP_F}       },
        {0,
         0,    1,
         250,          400,
         {.microbatch = 0, .stage = 1, .kind = OP_B}                          }, /* nothing was sent to it */
    };
    char *text = NULL;
    size_t size = 0;
    struct trace *trace = NULL;
    struct json *root = NULL;
    int64_t from = 0, to = 1;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(trace_begin(out, "simulated", &trace, NULL), OK);
    trace_ops(trace, simulated, sizeof simulated / sizeof *simulated, 0);
    assert_int_equal(trace_end(trace, NULL), OK);
    fclose(out);
    assert_int_equal(json_parse(text, "trace", &root, NULL), OK);
    struct json *events = json_get(root, "traceEvents");
    struct json *end = event(events, "f", "activation", 0);
    assert_non_null(end);
    assert_true(json_int64(json_get(event(events, "s", "activation", 0), "id"), &from));
    assert_true(json_int64(json_get(end, "id"), &to) && from == to);
    assert_true(json_number(json_get(end, "ts")) == 0.15);
    assert_string_equal(thread_name(events, end), "rank 1");
    assert_null(event(events, "f", "activation", 1));
    assert_null(event(events, "f", "gradient", 0));
    json_free(root);
    free(text);
}

static void trace_begin__escapes_its_title(void **state)
{
    (void)state;
    struct json *root = NULL;
    const char *odd = "a \"quoted\" \\ name\nwith \x01 and \xc3\xa9";
    char *text = traced(odd), want[80];
    snprintf(want, sizeof want, "%s pipeline 0", odd);
    assert_int_equal(json_parse(text, "trace", &root, NULL), OK);
    const struct json *named = event(json_get(root, "traceEvents"), "M", "process_name", 0);
    assert_string_equal(json_string(json_path(named, "args.name")), want);
    json_free(root);
    free(text);
}

static void whole_files__name_the_file_that_cannot_be_written(void **state)
{
    (void)state;
    static struct op_row many[1000]; /* more than a buffer */
    struct err err = {0};
    char want[160];
    const char *path = at("none/t.json");
    assert_int_equal(ops_csv_write_file(path, rows, NUM_ROWS, &err), ERR_SYSTEM);
    snprintf(want, sizeof want, "cannot write '%s': No such file or directory", path);
    assert_string_equal(err.msg, want);
    if (access("/dev/full", W_OK) != 0)
        skip();
    for (int i = 0; i < 1000; i++)
        many[i] = rows[i % NUM_ROWS];
    for (int n = NUM_ROWS; n <= 1000; n += 1000 - NUM_ROWS) {
        err = (struct err){0};
        assert_int_equal(ops_csv_write_file("/dev/full", many, n, &err), ERR_SYSTEM);
        assert_string_equal(err.msg, "cannot write '/dev/full': No space left on device");
    }
}

static void ops_csv_write_file__gives_a_row_an_op(void **state)
{
    (void)state;
    char *text = NULL, path[] = "/tmp/elapse-ops-XXXXXX";
    close(mkstemp(path));
    assert_int_equal(ops_csv_write_file(path, rows, NUM_ROWS, NULL), OK);
    assert_int_equal(file_read_text(path, &text, NULL), OK);
    unlink(path);
    assert_string_equal(text, "step,replica,rank,op,stage,microbatch,arg,start_ns,end_ns\n"
                              "0,0,0,F,0,0,0,0,1500\n"
                              "0,0,0,SEND_ACT,0,0,0,1500,1500\n"
                              "0,0,1,B,1,0,0,2000,4123\n"
                              "0,1,1,UPDATE,1,-1,0,4123,5000\n");
    free(text);
}

/* The samples of a counter of a process, as "ts=value" words. */
static void samples_of(struct json *events, int process, const char *counter, const char *unit,
                       char *words, size_t size)
{
    size_t used = 0;
    words[0] = '\0';
    for (struct json *e = json_first(events); e; e = json_next(e))
        if (strcmp(json_string(json_get(e, "ph")), "C") == 0 &&
            (int)json_number(json_get(e, "pid")) == process &&
            strcmp(json_string(json_get(e, "name")), counter) == 0)
            used += (size_t)snprintf(words + used, size - used, "%g=%g ",
                                     json_number(json_get(e, "ts")),
                                     json_number(json_get(json_get(e, "args"), unit)));
}

static void trace_ops__counts_idle_ranks_over_each_step(void **state)
{
    (void)state;
    /* us: rank 0 works 0..2 and 5..6, rank 1 2..5; the update of the second step ends it at 14. */
    static const struct op_row passes[] = {
        {1, 0, 0, 0,    2000, {.microbatch = 0, .kind = OP_F}                     },
        {1, 0, 0, 5000, 6000, {.microbatch = 0, .kind = OP_B}                     },
        {1, 0, 0, 5000, 9000, {.microbatch = 0, .kind = OP_P}                     },
        {1, 0, 1, 2000, 5000, {.microbatch = 0, .stage = 1, .kind = OP_F}         },
        {2, 0, 0, 1000, 4000, {.microbatch = OP_WHOLE_BATCH, .kind = OP_UPDATE}   },
        {2, 0, 0, 0,    1000, {.microbatch = OP_WHOLE_BATCH, .kind = OP_ALLREDUCE}},
    };
    char *text = NULL, words[256];
    size_t size = 0;
    struct trace *trace = NULL;
    struct json *root = NULL;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(trace_begin(out, "simulated", &trace, NULL), OK);
    trace_ops(trace, passes, 3, 0); /* one call for the rows of each rank, as a run does */
    trace_ops(trace, passes + 3, 1, 0);
    trace_ops(trace, passes + 4, 2, 10000);
    trace_bytes(trace, "memory", 0, 1, 2500, 7);
    trace_group(trace, "measured");
    trace_ops(trace, passes + 4, 1, 0);
    assert_int_equal(trace_end(trace, NULL), OK);
    fclose(out);
    assert_int_equal(json_parse(text, "trace", &root, NULL), OK);
    struct json *events = json_get(root, "traceEvents");
    samples_of(events, 1, "bubble", "idle ranks", words, sizeof words);
    /* The cache's copy outlasts the first step; an all-reduce is no pass; step 2 has one rank. */
    assert_string_equal(words, "0=1 2=1 5=1 6=0 10=1 11=0 14=0 ");
    samples_of(events, 1, "memory of rank 1", "bytes", words, sizeof words);
    assert_string_equal(words, "2.5=7 ");
    /* The other group has processes of its own. */
    const struct json *other = event(events, "M", "process_name", 1);
    assert_string_equal(json_string(json_path(other, "args.name")), "measured pipeline 0");
    samples_of(events, (int)json_number(json_get(other, "pid")), "bubble", "idle ranks", words,
               sizeof words);
    assert_string_equal(words, "0=1 1=0 4=0 ");
    json_free(root);
    free(text);
}

static void trace_ops__gives_overlapping_messages_lanes(void **state)
{
    (void)state;
    static const struct op_row sends[] = {
        {0, 0, 0, 0,   100, {.microbatch = 0, .kind = OP_SEND_ACT}},
        {0, 0, 0, 50,  150, {.microbatch = 1, .kind = OP_SEND_ACT}},
        {0, 0, 0, 100, 200, {.microbatch = 2, .kind = OP_SEND_ACT}},
    };
    static const char *const threads[] = {"rank 0 sends", "rank 0 sends 2", "rank 0 sends"};
    char *text = NULL, name[32];
    size_t size = 0;
    struct trace *trace = NULL;
    struct json *root = NULL;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(trace_begin(out, "simulated", &trace, NULL), OK);
    trace_ops(trace, sends, 3, 0);
    assert_int_equal(trace_end(trace, NULL), OK);
    fclose(out);
    assert_int_equal(json_parse(text, "trace", &root, NULL), OK);
    struct json *events = json_get(root, "traceEvents");
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "SEND_ACT%d s0", i);
        assert_string_equal(thread_name(events, event(events, "X", name, 0)), threads[i]);
    }
    json_free(root);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_ops__writes_strict_json_with_exact_times),
        cmocka_unit_test(trace_ops__joins_each_send_with_its_receive),
        cmocka_unit_test(trace_ops__ends_arrows_at_passes_without_receives),
        cmocka_unit_test(trace_begin__escapes_its_title),
        cmocka_unit_test(whole_files__name_the_file_that_cannot_be_written),
        cmocka_unit_test(ops_csv_write_file__gives_a_row_an_op),
        cmocka_unit_test(trace_ops__counts_idle_ranks_over_each_step),
        cmocka_unit_test(trace_ops__gives_overlapping_messages_lanes),
    };
    return cmocka_run_group_tests_name("trace", tests, scratch_make, scratch_remove);
}
