/* Starts a training run, and starts it again. Read restarts_run() at the end first. */
#include "cli/launch/restarts.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/launch/launch.h"
#include "cli/launch/losses.h"
#include "cli/launch/members.h"
#include "partition/base/safe_text.h"
#include "partition/base/units.h"
#include "profiles/base/clock.h"
#include "profiles/base/memory_folder.h"
#include "profiles/base/whole_file.h"
#include "profiles/json/json.h"

struct session {
    const struct restarts *asked;
    struct members members;
    struct losses losses; /* num_ranks 0: none are replayed */
    int64_t num_ranks;    /* of the present run */
    bool tried_again;     /* a rank that was given up has been tried once more */
    bool returned;        /* a lost machine answers again */
    int64_t ended_ns;     /* when the start before was seen to end, since 1970 */
    char call[48];        /* names this call of `elapse train`, for all its starts */
    char why[256];        /* of the present restart */
    struct stat before;   /* metrics.jsonl when the present run was started */
};

/* The largest step below `below` of the checkpoints in dir; -1: there is none. */
static int64_t newest_below(const char *dir, int64_t below)
{
    int64_t newest = -1, step;
    struct dirent *entry;
    DIR *list = opendir(dir);
    while (list && (entry = readdir(list)))
        if (strncmp(entry->d_name, "checkpoint-", 11) == 0 &&
            parse_int(entry->d_name + 11, "step", 0, INT64_MAX, &step, NULL) == OK &&
            step > newest && step < below)
            newest = step;
    if (list)
        closedir(list);
    return newest;
}

/* The step of the newest copy in memory of the run in dir; -1: there is none. */
static int64_t newest_copy(const char *dir)
{
    char path[PATH_MAX], folder[MEMORY_FOLDER_SIZE];
    struct json *root = NULL;
    int64_t step = -1;
    snprintf(path, sizeof path, "%s/run.json", dir);
    const char *id =
        json_read_file(path, &root, NULL) == OK ? json_string(json_get(root, "id")) : NULL;
    if (id) {
        memory_folder(id, folder);
        step = newest_below(folder, INT64_MAX);
    }
    json_free(root);
    return step;
}

int64_t restarts_newest_step(const char *dir)
{
    const int64_t file = newest_below(dir, INT64_MAX), copy = newest_copy(dir);
    return file > copy ? file : copy;
}

int64_t restarts_ranks(const char *dir)
{
    char path[PATH_MAX];
    int64_t step = INT64_MAX;
    double ranks = 0;
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    while (ranks == 0) {
        struct json *manifest = NULL;
        if (json_read_file(path, &manifest, NULL) == OK &&
            json_type(json_get(manifest, "ranks")) == JSON_NUMBER)
            ranks = json_number(json_get(manifest, "ranks"));
        json_free(manifest);
        step = newest_below(dir, step);
        if (step < 0)
            break;
        snprintf(path, sizeof path, "%s/checkpoint-%lld/manifest.json", dir, (long long)step);
    }
    return ranks >= 1 && ranks <= INT32_MAX ? (int64_t)ranks : 0;
}

/* Copy argv without --out, --resume and --init (and --plan, which is for all ranks, where fewer are
 * left), and put "--resume out" first, so that no "--" comes before it. resumed has room for
 * argc + 3 entries. Returns the new argc. */
static int resume_args(int argc, char **argv, const char *out, bool fewer, char **resumed)
{
    static const char *const dropped[] = {"--out", "--resume", "--init", "--plan"};
    int kept = 0;
    resumed[kept++] = argv[0];
    resumed[kept++] = "--resume";
    resumed[kept++] = (char *)out;
    for (int i = 1; i < argc; i++) {
        bool drop = false;
        for (size_t d = 0; d < sizeof dropped / sizeof dropped[0] - !fewer; d++) {
            size_t len = strlen(dropped[d]);
            if (strcmp(argv[i], dropped[d]) == 0) {
                drop = true;
                i++;
            } else if (strncmp(argv[i], dropped[d], len) == 0 && argv[i][len] == '=') {
                drop = true;
            }
        }
        if (!drop)
            resumed[kept++] = argv[i];
    }
    resumed[kept] = NULL;
    return kept;
}

static struct stat metrics_of(const char *out)
{
    char path[PATH_MAX];
    struct stat st = {0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    if (stat(path, &st) != 0)
        st = (struct stat){0};
    return st;
}

/* The step of the last line of metrics.jsonl; 0: there is none. A torn line does not count. */
static int64_t last_step(const char *out)
{
    char path[PATH_MAX], *line = NULL;
    size_t size = 0;
    int64_t step = 0, number;
    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    FILE *in = NULL;
    input_file(path, &in, NULL);
    while (in && getline(&line, &size, in) > 0) {
        struct json *json = NULL;
        if (json_parse(line, path, &json, NULL) == OK && json_get(json, "loss") &&
            json_int64(json_get(json, "step"), &number))
            step = number;
        json_free(json);
    }
    free(line);
    if (in)
        fclose(in);
    return step;
}

/* Whether the present run has opened its files. From then on its ranks handle SIGUSR2. */
static bool is_training(const struct session *s)
{
    const struct stat now = metrics_of(s->asked->out);
    return now.st_ino != s->before.st_ino || now.st_size > s->before.st_size;
}

static bool wants_yield(void *ctx)
{
    struct session *s = ctx;
    char names[160];
    if (!s->returned && members_ask_lost(&s->members) && is_training(s)) {
        (void)members_lost(&s->members, names, sizeof names);
        fprintf(stderr, "elapse: a lost node (%s) is back; it rejoins at the next checkpoint\n",
                names);
        s->returned = true;
    }
    const bool again = s->members.given_up > 0 && !s->tried_again && s->losses.num_ranks == 0;
    return (s->returned || again) && is_training(s);
}

/* Also if it was not asked: whoever sends SIGUSR2 to a rank ends that start of the run, not the run. */
static bool has_yielded(void *ctx)
{
    const struct session *s = ctx;
    struct json *summary = NULL;
    if (!is_training(s)) /* the summary is an older one */
        return false;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/summary.json", s->asked->out);
    const bool got =
        json_read_file(path, &summary, NULL) == OK && json_true(json_get(summary, "yielded"));
    json_free(summary);
    return got;
}

static enum status start(struct session *s, int argc, char **argv, const char *kind, bool *yielded,
                         struct err *err)
{
    const bool watched = s->asked->max_restarts > 0;
    char *words = members_words(&s->members), restart[320], losses[64], ended[24];
    struct launch launch = {.num_ranks = s->num_ranks, .launcher = words, .ctx = s};
    enum status rc = words ? OK : err_nomem(err);
    if (watched) {
        launch.call = s->call;
        launch.wants_yield = wants_yield;
        launch.has_yielded = has_yielded;
        s->before = metrics_of(s->asked->out);
    }
    if (kind) {
        snprintf(restart, sizeof restart, "%s: %s", kind, s->why);
        launch.restart = restart;
        snprintf(ended, sizeof ended, "%lld", (long long)s->ended_ns);
        launch.ended = ended;
    }
    if (s->losses.num_ranks > 0) {
        losses_text(&s->losses, losses);
        launch.losses = losses;
    }
    s->returned = false;
    THEN(launch_exec(&launch, argc, argv, yielded, err));
    s->ended_ns = clock_wall_ns();
    free(words);
    return rc;
}

/* After a loss: which machines answer, and with how many ranks the run continues. stuck: no
 * checkpoint was written since the last restart. */
static enum status count_ranks(struct session *s, bool stuck, struct err *err)
{
    const int64_t were = s->num_ranks;
    char names[160];
    members_ask(&s->members);
    const bool lost = members_lost(&s->members, names, sizeof names);
    const bool replayed =
        s->losses.num_ranks > 0 && losses_happen(&s->losses, true, last_step(s->asked->out));
    if (s->losses.num_ranks > 0)
        s->members.given_up = s->losses.num_down;
    else if (stuck && members_ranks(&s->members) >= were && were > 1)
        s->members.given_up++;
    s->num_ranks = members_ranks(&s->members);
    if (s->num_ranks < were && lost)
        snprintf(s->why, sizeof s->why, "node %s does not answer", names);
    else if (replayed)
        snprintf(s->why, sizeof s->why, "the losses to replay leave %s",
                 COUNT_TEXT(s->num_ranks, "rank"));
    else if (s->num_ranks < were)
        snprintf(s->why, sizeof s->why, "lost twice without a new checkpoint between");
    else
        snprintf(s->why, sizeof s->why, "a rank was lost");
    if (s->num_ranks >= s->asked->min_ranks)
        return OK;
    char left[32];
    return err_set(err, ERR_SYSTEM, "%s %s left, --min-ranks is %lld (%s)",
                   format_count(s->num_ranks, "rank", left, sizeof left),
                   s->num_ranks == 1 ? "is" : "are", (long long)s->asked->min_ranks, s->why);
}

/* Let ranks join again the run, which has stopped for them. */
static void take_back(struct session *s)
{
    const int64_t were = s->num_ranks;
    char more[32], now[32];
    if (s->members.given_up > 0)
        s->tried_again = true;
    if (s->losses.num_ranks > 0)
        losses_happen(&s->losses, false, last_step(s->asked->out));
    s->members.given_up = s->losses.num_down;
    members_ask(&s->members);
    s->num_ranks = members_ranks(&s->members);
    if (s->num_ranks == were)
        snprintf(s->why, sizeof s->why, "a signal asked it to stop");
    else
        snprintf(s->why, sizeof s->why, "%s %s again",
                 format_count(s->num_ranks - were, "rank", more, sizeof more),
                 s->num_ranks - were == 1 ? "joins" : "join");
    fprintf(stderr, "elapse: the run continues with %s: %s\n",
            format_count(s->num_ranks, "rank", now, sizeof now), s->why);
}

/* Say that the run is restarted, and why. */
static void report_restart(const struct session *s, int64_t number, int64_t were,
                           const struct err *why)
{
    char ranks[300] = "";
    if (s->num_ranks != were)
        snprintf(ranks, sizeof ranks, ", with %lld of %lld ranks: %s", (long long)s->num_ranks,
                 (long long)s->asked->num_ranks, s->why);
    fprintf(stderr, "elapse: %s; restart %lld of %lld from the last checkpoint%s\n",
            why->msg[0] ? why->msg : "the run was lost", (long long)number,
            (long long)s->asked->max_restarts, ranks);
}

static enum status restart_or_end(struct session *s, int argc, char **argv, bool yielded,
                                  enum status rc, struct err *err)
{
    char **resumed = calloc((size_t)argc + 3, sizeof *resumed);
    int64_t saved = -1, used = 0;
    if (!resumed)
        return rc != OK ? rc : err_nomem(err);
    while (yielded || (rc == ERR_SYSTEM && used < s->asked->max_restarts)) {
        const char *kind = yielded ? "returned" : "lost";
        const int64_t were = s->num_ranks, step = restarts_newest_step(s->asked->out);
        struct err why = {0};
        if (launch_stopped() || step < 0)
            break;
        if (yielded) {
            take_back(s);
        } else {
            rc = count_ranks(s, step == saved, &why);
            if (rc != OK) {
                *err = why;
                break;
            }
            report_restart(s, ++used, were, err);
        }
        saved = yielded ? -1 : step;
        *err = (struct err){0};
        rc = start(
            s, resume_args(argc, argv, s->asked->out, s->num_ranks < s->asked->num_ranks, resumed),
            resumed, kind, &yielded, err);
    }
    free(resumed);
    return rc;
}

/* After a loss that ends the run: how to resume. Ranks that stopped for a reason of their own have
 * printed it, with a hint. */
static enum status ended(const struct restarts *restarts, enum status rc, struct err *err)
{
    if (rc == ERR_SYSTEM && err->msg[0] && restarts->out && !launch_stopped() &&
        restarts_newest_step(restarts->out) >= 0)
        err_hint(err, "continue with: elapse train --resume %s -n %lld", SHELL_PATH(restarts->out),
                 (long long)restarts->num_ranks);
    return rc;
}

enum status restarts_run(const struct restarts *restarts, int argc, char **argv, struct err *err)
{
    struct session s = {.asked = restarts, .num_ranks = restarts->num_ranks};
    struct timespec now;
    bool yielded = false;
    if (restarts->max_restarts == 0) {
        const struct launch launch = {.num_ranks = restarts->num_ranks};
        return ended(restarts, launch_exec(&launch, argc, argv, NULL, err), err);
    }
    enum status rc = members_init(launch_words(), restarts->num_ranks, &s.members, err);
    if (rc != OK)
        return rc;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(s.call, sizeof s.call, "%lld-%lld.%09ld", (long long)getpid(), (long long)now.tv_sec,
             now.tv_nsec);
    if (restarts->losses)
        rc = losses_read(restarts->losses, (int)restarts->num_ranks, &s.losses, err);
    if (rc == OK) {
        rc = start(&s, argc, argv, NULL, &yielded, err);
        rc = restart_or_end(&s, argc, argv, yielded, rc, err);
    }
    losses_clear(&s.losses);
    members_clear(&s.members);
    return ended(restarts, rc, err);
}
