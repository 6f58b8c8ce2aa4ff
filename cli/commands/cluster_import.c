/* Outputs of nccl-tests become points [bytes, rate] that give their times back: the time of the
 * smallest size is latency, and the rest of each time is on the wire, by the algorithm's share of the
 * bytes (doc/PERFORMANCE.md of nccl-tests, whose busbw has that share too). A matrix of nvidia-smi has
 * the number of devices and the kinds of their links, but no rate. */
#include "cli/commands/cluster_import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"
#include "partition/cluster/cluster.h"
#include "partition/cluster/device_kinds.h"
#include "profiles/base/whole_file.h"
#include "profiles/job/kind_json.h"

enum { WORDS_MAX = 256, HOSTS_MAX = 1024 };

struct found {
    int devices;             /* of the matrix; 0: none was read */
    bool nvlink;             /* between all of them */
    const char *slowest;     /* link of the matrix */
    int nodes, per_node;     /* of nccl-tests, the most; 0: none was read */
    bool one_node;           /* a test of one node was read */
    char kind[32];           /* of nccl-tests, or as given */
    struct json *collective; /* owned */
};

/* Divide a line at blanks in place, without the escapes that colour it. */
static int split(char *line, char **words)
{
    int n = 0;
    char *rest = NULL;
    for (char *e = strchr(line, '\033'); e; e = strchr(e, '\033')) {
        const size_t length = strcspn(e, "m");
        memset(e, ' ', length + (e[length] == 'm'));
    }
    for (char *w = strtok_r(line, " \t\r", &rest); w && n < WORDS_MAX;
         w = strtok_r(NULL, " \t\r", &rest))
        words[n++] = w;
    return n;
}

/* --- nvidia-smi topo -m ------------------------------------------------------------------------- */

static bool is_gpu(const char *word, int number)
{
    char name[16];
    snprintf(name, sizeof name, "GPU%d", number);
    return strcmp(word, name) == 0;
}

/* Note the links of a row to the devices. */
static enum status take_row(struct found *found, char *const *words, int n, int row,
                            const char *path, struct err *err)
{
    static const char *const kinds[] = {"NV", "PIX", "PXB", "PHB", "NODE", "SYS"}; /* by speed */
    enum { NUM_KINDS = sizeof kinds / sizeof *kinds };
    if (n <= found->devices)
        return err_set(err, ERR_INPUT, "%s: the row of GPU%d has %d links of %d", path, row, n - 1,
                       found->devices);
    for (int i = 0; i < found->devices; i++) {
        const char *const link = words[1 + i];
        int kind = 0, worst = 0;
        if (strcmp(link, "X") == 0)
            continue;
        while (kind < NUM_KINDS &&
               (kind == 0 ? strncmp(link, "NV", 2) != 0 : strcmp(link, kinds[kind]) != 0))
            kind++;
        if (kind == NUM_KINDS)
            return err_set(err, ERR_INPUT, "%s: GPU%d and GPU%d have the link '%.16s'", path, row,
                           i, link);
        while (found->slowest && found->slowest != kinds[worst])
            worst++;
        if (!found->slowest || kind > worst)
            found->slowest = kinds[kind];
    }
    return OK;
}

static enum status take_matrix(struct found *found, char *text, const char *path, struct err *err)
{
    char *rest = NULL, *words[WORDS_MAX];
    int rows = 0;
    enum status rc = OK;
    for (char *line = strtok_r(text, "\n", &rest); line && rc == OK;
         line = strtok_r(NULL, "\n", &rest)) {
        const int n = split(line, words);
        if (found->devices == 0 && n > 1 && is_gpu(words[0], 0) && is_gpu(words[1], 1))
            while (found->devices < n && is_gpu(words[found->devices], found->devices))
                found->devices++;
        else if (n > 1 && found->devices > 0 && is_gpu(words[0], rows))
            rc = take_row(found, words, n, rows++, path, err);
    }
    if (rc == OK && rows != found->devices)
        rc = err_set(err, ERR_INPUT, "%s: the matrix has %d rows for %d GPUs", path, rows,
                     found->devices);
    found->nvlink = found->slowest && strcmp(found->slowest, "NV") == 0;
    return rc;
}

/* --- nccl-tests --------------------------------------------------------------------------------- */

struct point {
    double bytes, ns;
};
struct test {
    enum collective kind;
    int ranks, hosts;
    char *host[HOSTS_MAX]; /* in the text */
    struct point *at;      /* owned, ascending in bytes and time */
    int n;
    double bus_over_algorithm; /* of the last row */
    bool sums;
};

/* Take "#  Rank  0 Group  0 Pid 6899 on HOST device  0 [0000:04:00] NVIDIA H100 80GB HBM3". */
static void take_rank(struct found *found, struct test *test, char *const *words, int n)
{
    int on = 0, device = 0;
    char name[128] = "";
    for (int i = 0; i < n; i++) {
        on = strcmp(words[i], "on") == 0 ? i : on;
        device = strcmp(words[i], "device") == 0 ? i : device;
    }
    if (!on || !device)
        return;
    int h = 0;
    while (h < test->hosts && strcmp(test->host[h], words[on + 1]) != 0)
        h++;
    if (h == test->hosts && h < HOSTS_MAX)
        test->host[test->hosts++] = words[on + 1];
    test->ranks++;
    for (int i = device + 3; i < n; i++)
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%s", *name ? " " : "",
                 words[i]);
    const struct kind *const kind = kind_find_typed(name);
    if (kind && !*found->kind)
        snprintf(found->kind, sizeof found->kind, "%s", kind->name);
}

/* Take a row of numbers; `time` is the place of the time, before which the op stands. */
static enum status take_numbers(struct test *test, char *const *words, int n, int time,
                                struct err *err)
{
    const struct point point = {strtod(words[0], NULL), 1e3 * strtod(words[time], NULL)};
    if (time + 2 >= n || point.bytes <= 0 || point.ns <= 0)
        return OK;
    if (!array_extend(&test->at, test->n, sizeof *test->at))
        return err_nomem(err);
    const struct point *last = test->n > 0 ? &test->at[test->n - 1] : NULL;
    test->sums = time > 3 && strcmp(words[3], "none") != 0;
    const double algorithm = strtod(words[time + 1], NULL), bus = strtod(words[time + 2], NULL);
    if (algorithm > 0)
        test->bus_over_algorithm = bus / algorithm;
    if (!last || (point.bytes > last->bytes && point.ns > last->ns))
        test->at[test->n++] = point;
    return OK;
}

static enum status find_collective(const char *text, const char *path, struct test *test,
                                   struct err *err)
{
    static const struct {
        const char *program;
        enum collective kind;
    } programs[] = {
        {"all_reduce_perf",     COLLECTIVE_ALLREDUCE     },
        {"reduce_scatter_perf", COLLECTIVE_REDUCE_SCATTER},
        {"all_gather_perf",     COLLECTIVE_ALLGATHER     },
        {"alltoall_perf",       COLLECTIVE_ALLTOALL      },
    };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strstr(text, programs[i].program)) {
            test->kind = programs[i].kind;
            return OK;
        }
    const double share = test->ranks > 1 ? (test->ranks - 1.0) / test->ranks : 1;
    const bool sum = test->bus_over_algorithm > 1.5 * share;
    if (!sum && !test->sums)
        return err_set(
            err, ERR_INPUT,
            "%s: no line says which program of nccl-tests that is (all_gather_perf, ...)", path);
    test->kind = sum ? COLLECTIVE_ALLREDUCE : COLLECTIVE_REDUCE_SCATTER;
    return OK;
}

/* Add the points of a test: of the link if it ran in one node, else of the uplink. */
static void add_points(struct found *found, const struct test *test)
{
    const char *const name = collective_name(test->kind);
    const bool one = test->hosts < 2;
    const int n = test->ranks, passes = collective_passes(test->kind);
    const double inside = n / (double)test->hosts;
    const double share = passes > 0 ? passes * (n - 1.0) / n
                         : one      ? (n - 1.0) / n
                                    : inside * (n - inside) / n;
    const int steps = passes > 0 ? passes * (n - 1) : 1;
    struct json *of = json_get(found->collective, name);
    if (!of)
        of = json_add_object(found->collective, name);
    struct json *points = json_add_array(of, one ? "link" : "uplink");
    double last = 0;
    const int left = test->n - 1, many = left < CURVE_POINTS_MAX ? left : CURVE_POINTS_MAX;
    for (int k = 0; k < many; k++) {
        const struct point *const p =
            &test->at[1 + (many > 1 ? k * (left - 1) / (many - 1) : left - 1)];
        const double rate = 1e9 * share * p->bytes / (p->ns - test->at[0].ns);
        struct json *point = json_add_array(points, NULL);
        last = rate > last ? rate : last; /* a curve may not fall */
        json_add_int(point, NULL, (int64_t)p->bytes);
        json_add_int(point, NULL, (int64_t)last);
    }
    char text[32];
    snprintf(text, sizeof text, "%.0fns", test->at[0].ns / steps);
    json_add_string(of, one ? "latency" : "uplink_latency", text);
    if (!json_get(of, "fixed"))
        json_add_string(of, "fixed", "0us");
}

static enum status check_test(const struct test *test, bool ended, const char *path,
                              struct err *err)
{
    if (test->ranks < 2)
        return err_set(err, ERR_INPUT, "%s: %d ranks measure no link", path, test->ranks);
    if (!ended)
        return err_set(err, ERR_INPUT, "%s is cut: it has no line 'Avg bus bandwidth'", path);
    if (test->n < 2)
        return err_set(err, ERR_INPUT, "%s: two sizes are needed, got %d", path, test->n);
    if (test->ranks % test->hosts != 0)
        return err_set(err, ERR_INPUT, "%s: %d ranks are not equally many on %d nodes", path,
                       test->ranks, test->hosts);
    return OK;
}

/* Count a test that has passed all checks. */
static void keep_test(struct found *found, const struct test *test)
{
    const int per_node = test->ranks / test->hosts;
    add_points(found, test);
    found->one_node = found->one_node || test->hosts == 1;
    found->nodes = test->hosts > found->nodes ? test->hosts : found->nodes;
    found->per_node = per_node > found->per_node ? per_node : found->per_node;
}

static enum status take_test(struct found *found, char *text, const char *path, struct err *err)
{
    struct test test = {0};
    char *rest = NULL, *words[WORDS_MAX];
    const bool ended = strstr(text, "Avg bus bandwidth"), failed = strstr(text, " FAILED");
    char *const whole = strdup(text);
    int time = 0;
    enum status rc = whole ? OK : err_nomem(err);
    for (char *line = strtok_r(text, "\n", &rest); line && rc == OK;
         line = strtok_r(NULL, "\n", &rest)) {
        const int n = split(line, words);
        if (n > 2 && strcmp(words[0], "#") == 0 && strcmp(words[1], "Rank") == 0)
            take_rank(found, &test, words, n);
        for (int i = 2; n > 2 && strcmp(words[1], "size") == 0 && i < n && time == 0; i++)
            time = strcmp(words[i], "time") == 0 ? i - 1 : 0;
        if (n > time && time > 0 && strspn(words[0], "0123456789") == strlen(words[0]))
            rc = take_numbers(&test, words, n, time, err);
    }
    THEN(check_test(&test, ended, path, err));
    if (rc == OK && failed)
        rc = err_set(err, ERR_INPUT, "%s: the test found wrong values", path);
    THEN(find_collective(whole, path, &test, err));
    if (rc == OK)
        keep_test(found, &test);
    free(test.at);
    free(whole);
    return rc;
}

/* ------------------------------------------------------------------------------------------------ */

static enum status take_file(struct found *found, const char *path, struct err *err)
{
    char *text = NULL;
    enum status rc = file_read_text(path, &text, err);
    if (rc == OK && strstr(text, "busbw"))
        rc = take_test(found, text, path, err);
    else if (rc == OK && strstr(text, "GPU0") && found->devices == 0)
        rc = take_matrix(found, text, path, err);
    else if (rc == OK)
        rc = err_set(err, ERR_INPUT, "%s: %s", path,
                     strstr(text, "GPU0")
                         ? "a second matrix of nvidia-smi"
                         : "neither 'nvidia-smi topo -m' nor nccl-tests printed it");
    free(text);
    return rc;
}

static enum status check(const struct found *found, struct err *err)
{
    if (!*found->kind) {
        err_set(err, ERR_INPUT, "cluster import: no file names a known kind of device");
        return err_hint(err, "--kind KIND ('elapse devices' lists them)"), ERR_INPUT;
    }
    if (found->devices > 0 && found->per_node > found->devices)
        return err_set(err, ERR_INPUT, "nccl-tests ran on %d devices a node, the matrix has %d",
                       found->per_node, found->devices);
    if (found->devices > 1 && !found->nvlink && !found->one_node) {
        err_set(err, ERR_INPUT, "the devices meet by %s, and a matrix does not say its rate",
                found->slowest);
        return err_hint(err, "add the output of all_reduce_perf in one node"), ERR_INPUT;
    }
    return OK;
}

enum status cluster_import(const char *const *paths, int num_paths, const char *kind,
                           struct json **cluster, struct err *err)
{
    struct found found = {.collective = json_object_new()};
    enum status rc = OK;
    if (kind && !kind_find_typed(kind))
        rc = kind_unknown("unknown device", kind, err);
    else if (kind)
        snprintf(found.kind, sizeof found.kind, "%s", kind_find_typed(kind)->name);
    for (int i = 0; i < num_paths && rc == OK; i++)
        rc = take_file(&found, paths[i], err);
    THEN(check(&found, err));
    if (rc == OK) {
        struct json *const out = *cluster = json_object_new();
        json_add_int(out, "nodes", found.nodes > 0 ? found.nodes : 1);
        json_add_int(out, "devices_per_node", found.devices > 0 ? found.devices : found.per_node);
        json_add_string(out, "kind", found.kind);
        if (found.nodes > 0)
            json_add_copy(out, "collective", found.collective);
        rc = json_check(out, err);
    }
    json_free(found.collective);
    return rc;
}
