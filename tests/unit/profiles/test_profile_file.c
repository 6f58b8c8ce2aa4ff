#include "profiles/store/profile_file.h"

#include <unistd.h>

#include "profiles/store/store.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static void fill(struct profile *profile)
{
    struct layer_row row = {
        .backend = "cpu",
        .dtype = "fp32",
        .threads = 1,
        .ranks = 2,
        .key = {.item = "mlp", .variant = "erf", .hidden = 192},
        .pass = "fwd"
    };
    struct link_row link = {
        "mpi", "node", 1, 4096, {1000.25, 900, 1e15 / 7, 7}
    };
    struct collective_row sum = {
        "allreduce", "mpi", "node", 2, 1 << 20, {5e5, 4e5, 6e5, 7}
    };
    struct host_row host = {
        "op_overhead", "cpu", 1, 1, 0, 0, {1500, 1200, 2000, 100}
    };
    struct memory_row memory = {"vit, \"K\"=2", INT64_C(9007199254740993), 1010};
    struct profile_info info = {.name = "it's \"one\"",
                                .device_kind = "cpu",
                                .note = "commas, 'single' and \"double\"\nlines",
                                .libraries = "OpenBLAS, Open MPI",
                                .driver = "\"quoted\"",
                                .host = "two\nlines",
                                .mem_bytes = INT64_C(9007199254740993),
                                .load = 0.1};
    *profile = (struct profile){0};
    profile->info = info;
    for (int i = 0; i < 1203; i++) {
        row.samples = i;
        row.ns = (struct spread){1e6 / 3 * (i + 1), 1e6 / 7, 1e9, i + 1};
        assert_int_equal(profile_add_layer(profile, &row, NULL), OK);
    }
    assert_int_equal(profile_add_link(profile, &link, NULL), OK);
    assert_int_equal(profile_add_collective(profile, &sum, NULL), OK);
    assert_int_equal(profile_add_host(profile, &host, NULL), OK);
    assert_int_equal(profile_add_memory(profile, &memory, NULL), OK);
    assert_int_equal(profile_check(profile, "t", NULL), OK);
}

static void count_difference(void *ctx, const struct row_table *table, const void *a, const void *b)
{
    (void)table;
    (void)a;
    (void)b;
    ++*(int *)ctx;
}

static void same_profile(const struct profile *a, const struct profile *b)
{
    int differences = 0;
    assert_memory_equal(&a->info, &b->info, sizeof a->info);
    profile_diff(a, b, count_difference, &differences);
    assert_int_equal(differences, 0);
    assert_int_equal(a->num_layers, b->num_layers);
}

static void profile_read_file__gives_back_what_was_written(void **state)
{
    (void)state;
    struct profile profile, back = {0};
    struct err err = {0};
    struct store *store = NULL;
    char command[300];
    fill(&profile);
    struct json *root = json_object_new();
    profile_to_json(&profile, root);
    assert_int_equal(json_write_file(root, at("p.json"), NULL), OK);
    json_free(root);
    if (profile_read_file(at("p.json"), &back, &err) != OK)
        fail_msg("%s", err.msg);
    same_profile(&profile, &back);
    profile_clear(&back);
    FILE *out = fopen(at("p.csv"), "w");
    profile_to_csv(&profile, out);
    fclose(out);
    if (profile_read_file(at("p.csv"), &back, &err) != OK)
        fail_msg("%s", err.msg);
    same_profile(&profile, &back);
    profile_clear(&back);
    /* SQL goes through sqlite itself, as the shipped profiles do; the store reads it back. */
    out = fopen(at("p.sql"), "w");
    profile_to_sql(&profile, out);
    fclose(out);
    assert_int_equal(store_open(at("p.db"), STORE_RECORD, &store, NULL), OK);
    store_close(store);
    snprintf(command, sizeof command, "command -v sqlite3 >/dev/null && sqlite3 %s/p.db < %s/p.sql",
             scratch, scratch);
    if (system(command) != 0) {
        profile_clear(&profile);
        skip(); /* no sqlite3 program here */
    }
    assert_int_equal(store_open(at("p.db"), STORE_READ, &store, NULL), OK);
    if (store_get_profile(store, profile.info.name, &back, &err) != OK)
        fail_msg("%s", err.msg);
    same_profile(&profile, &back);
    store_close(store);
    profile_clear(&back);
    profile_clear(&profile);
}

static void refuses(const char *name, const char *text, const char *message)
{
    struct profile profile = {0};
    struct err err = {0};
    assert_int_equal(profile_read_file(file_with(name, text), &profile, &err), ERR_INPUT);
    if (!strstr(err.msg, message))
        fail_msg("'%s' does not say '%s'", err.msg, message);
    assert_null(profile.links);
}

#define HEAD "{\"elapse_profile\":1,\"profile\":{\"name\":\"p\",\"device_kind\":\"cpu\"},"
#define LINK(ns)                                                                                   \
    "{\"backend\":\"mpi\",\"place\":\"node\",\"ranks\":1,\"bytes\":8," ns                          \
    "\"p10_ns\":1,\"p90_ns\":9e9,\"count\":3}"

static void profile_read_file__refuses_bad_json(void **state)
{
    (void)state;
    struct profile profile = {0};
    struct err err = {0};
    assert_int_equal(profile_read_file(
                         file_with("ok.json", HEAD "\"link_cost\":[" LINK("\"median_ns\":5,") "]}"),
                         &profile, &err),
                     OK);
    profile_clear(&profile);
    refuses("b.json", HEAD "\"link_cost\":[" LINK("\"median_us\":5,") "]}",
            "b.json: link_cost[0]: link_cost has no column 'median_us', nearest is 'median_ns'");
    refuses("b.json", HEAD "\"link_cost\":[" LINK("\"median_ns\":\"5us\",") "]}",
            "link_cost[0]: median_ns must be a number, got a text");
    refuses("b.json", HEAD "\"link_cost\":[" LINK("\"median_ns\":NaN,") "]}", "a value is missing");
    refuses("b.json", HEAD "\"link_cost\":[" LINK("\"median_ns\":null,") "]}",
            "median_ns must be a number, got null");
    refuses("b.json", HEAD "\"link_cost\":[" LINK("\"median_ns\":-5,") "]}",
            "median_ns must be a number of ns from 0 to a year, got -5");
    refuses("b.json", HEAD "\"link_cost\":[" LINK("") "]}", "link_cost[0]: median_ns is missing");
    refuses("b.json",
            HEAD "\"link_cost\":[" LINK("\"median_ns\":5,") "," LINK("\"median_ns\":6,") "]}",
            "link_cost (mpi node ranks=1 bytes=8) is there twice");
    refuses("b.json", HEAD "\"links\":[]}", "'links' must be an array named");
    refuses("b.json", "{\"elapse_profile\":2}", "elapse_profile must be 1, got another version");
    refuses("b.json", "{}", "elapse_profile must be 1");
    refuses("b.json", "{\"elapse_profile\":1}", "must have a name and a device_kind");
    refuses("b.json", HEAD "\"link_cost\":[", "the text ends too early");
}

#define CSV_HEAD                                                                                   \
    "table,name,device_kind\nprofile,p,cpu\n"                                                      \
    "table,backend,place,ranks,bytes,median_ns,p10_ns,p90_ns,count\n"

static void profile_read_file__refuses_bad_csv(void **state)
{
    (void)state;
    struct profile profile = {0};
    struct err err = {0};
    assert_int_equal(
        profile_read_file(file_with("ok.csv", CSV_HEAD "link_cost,mpi,node,1,8,5,1,9,3\r\n"),
                          &profile, &err),
        OK);
    assert_int_equal(profile.num_links, 1);
    profile_clear(&profile);
    refuses("b.csv", CSV_HEAD "link_cost,mpi,node,1,8,nan,1,9,3\n", "number of ns");
    refuses("b.csv", CSV_HEAD "link_cost,mpi,node,1,8,-5,1,9,3\n", "number of ns");
    refuses("b.csv", CSV_HEAD "link_cost,mpi,node,1,8,5us,1,9,3\n",
            "b.csv:4: median_ns must be a number, got 5us");
    refuses("b.csv", CSV_HEAD "link_cost,mpi,node,1,8.5,5,1,9,3\n",
            "b.csv:4: bytes must be a whole number, got 8.5");
    refuses("b.csv", CSV_HEAD "link_cost,mpi,node,1,8,5,1,9\n",
            "b.csv:4: must have 9 cells, as the header has, got 8");
    refuses("b.csv", CSV_HEAD "link_cost,\"mpi,node,1,8,5,1,9,3\n", "a quote that does not end");
    refuses("b.csv", CSV_HEAD "link_cost,mpi,node,1,8,5,1,9,3\nlink_cost,mpi,node,1,8,5,1,9,3\n",
            "is there twice");
    refuses("b.csv", CSV_HEAD "linkcost,mpi,node,1,8,5,1,9,3\n", "the first cell must be");
    refuses("b.csv",
            "table,backend,place,ranks,bytes,median_us,p10_ns,p90_ns,count\n"
            "link_cost,mpi,node,1,8,5,1,9,3\n",
            "has no column 'median_us', nearest is 'median_ns'");
    refuses("b.csv", CSV_HEAD "link_cost,mpi,node,1,8,5,1,9,33",
            "b.csv:4: the last line does not end: the text is cut off");
    refuses("b.csv", CSV_HEAD "link_cost,mpi,node,9223372036854775807,8,5,1,9,3\n",
            "ranks must be at most 2147483647, got 9223372036854775807");
    refuses("b.csv", "table,name,device_kind,load\nprofile,p,cpu,inf\n",
            "load must be numbers of at least 0");
    refuses("b.csv", "nonsense", "the first cell must be");
    refuses("b.csv", "table,name\n", "has no row 'profile'");
    refuses("b.csv", "", "the text ends too early");
    assert_int_equal(profile_read_file(at("none.csv"), &profile, &err), ERR_SYSTEM);
}

/* Truncate and mutate a CSV everywhere: a clean error or a clean profile. */
static void profile_from_csv__survives_truncation_and_mutation(void **state)
{
    (void)state;
    const char good[] = CSV_HEAD "link_cost,\"m\"\"pi\",node,1,8,5,1,9,3\n";
    for (size_t n = 0; n < sizeof good - 1; n++) {
        struct profile profile = {0};
        char *text = strndup(good, n);
        if (profile_from_csv(text, "t", &profile, NULL) == OK)
            profile_clear(&profile);
        free(text);
        for (int c = 1; c < 128; c += 3) {
            text = strdup(good);
            text[n] = (char)c;
            if (profile_from_csv(text, "t", &profile, NULL) == OK)
                profile_clear(&profile);
            free(text);
        }
    }
}

static void profile_diff__counts_what_differs(void **state)
{
    (void)state;
    struct profile a, b;
    int differences = 0;
    fill(&a);
    fill(&b);
    b.layers[5].ns.median_ns += 1;
    b.num_layers--;
    b.links[0].bytes++;
    profile_diff(&a, &b, count_difference, &differences);
    assert_int_equal(differences, 4); /* changed; only in a; link: only in a, only in b */
    profile_clear(&a);
    profile_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profile_read_file__gives_back_what_was_written),
        cmocka_unit_test(profile_read_file__refuses_bad_json),
        cmocka_unit_test(profile_read_file__refuses_bad_csv),
        cmocka_unit_test(profile_from_csv__survives_truncation_and_mutation),
        cmocka_unit_test(profile_diff__counts_what_differs),
    };
    return cmocka_run_group_tests_name("profile_file", tests, scratch_make, scratch_remove);
}
