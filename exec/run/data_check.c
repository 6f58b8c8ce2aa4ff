/* Checks pictures in blocks (data_check.h).
 *
 * The samples of the run are numbered through its splits, and BLOCK_FILES neighbours are a block. A
 * block's key is a digest of the path, size and time of change of its files. Rank 0 makes the keys,
 * drops the blocks whose key is in the list of known ones, and tells the ranks which blocks are
 * left. Each rank reads a range of the samples in these, so the first bad file by number is that of
 * the lowest rank. Blocks without a bad file are then added to the list, even if others have one.
 *
 * The list is elapse/checked-pictures in $XDG_CACHE_HOME, or in ~/.cache: a key in hex digits a
 * line, the newest last. It is replaced as a whole. If two runs write at the same time, one loses
 * its keys, and its files are read again by the next run. Read data_check() first. */
#include "exec/run/data_check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "exec/weights/sha256.h"
#include "profiles/base/ticker.h"
#include "profiles/base/whole_file.h"

/* Bump KEY_VERSION if a file that was accepted may be refused by a later version. */
#define KEY_VERSION "pictures-1"
enum { BLOCK_FILES = 1024, KEY_CHARS = 32, KEYS_MAX = 1 << 16, ROUND_FILES = 64 };

struct check {
    struct trainer *t;
    int64_t first[SPLIT_COUNT + 1]; /* number of the first sample of each split */
    int64_t num_blocks;
    char (*keys)[KEY_CHARS + 1]; /* owned; rank 0 */
    double *bad;                 /* owned, [num_blocks]: bad files of each block; whole numbers */
    char *wanted;                /* owned, [num_blocks]: 1: it is not known */
    int64_t round, *numbers;     /* numbers is owned, [round]: samples read at once */
    char *list_path;             /* owned; NULL: no place to remember anything */
    char *known;                 /* owned: contents of the list; NULL: none */
};

static int64_t num_samples(const struct check *check)
{
    return check->first[SPLIT_COUNT];
}

static enum split place(const struct check *check, int64_t number, int64_t *id)
{
    enum split split = SPLIT_TRAIN, source;
    while (number >= check->first[split + 1])
        split++;
    *id = dataset_source(&check->t->dataset, split, number - check->first[split], &source);
    return source;
}

static int64_t block_end(const struct check *check, int64_t block)
{
    const int64_t end = (block + 1) * BLOCK_FILES;
    return end < num_samples(check) ? end : num_samples(check);
}

/* --- what is known ---------------------------------------------------------------------------- */

static void find_list(struct check *check)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool own = cache && *cache;
    if (!own && !(home && *home))
        return;
    if (asprintf(&check->list_path, "%s%s/elapse/checked-pictures", own ? cache : home,
                 own ? "" : "/.cache") < 0)
        check->list_path = NULL;
    if (check->list_path)
        (void)file_read_text(check->list_path, &check->known, NULL); /* there may be none */
}

/* A key that is never found, if a file is missing. */
static enum status make_key(const struct check *check, int64_t block, struct err *err)
{
    const struct dataset *dataset = &check->t->dataset;
    const int side = check->t->job->data.resize ? 0 : dataset->image;
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX], here[4096] = "";
    struct sha256 sha;
    if (!getcwd(here, sizeof here))
        *here = '\0';
    sha256_begin(&sha);
    sha256_add(&sha, KEY_VERSION, sizeof KEY_VERSION);
    sha256_add(&sha, &side, sizeof side);
    for (int64_t n = block * BLOCK_FILES; n < block_end(check, block); n++) {
        int64_t id;
        const enum split source = place(check, n, &id);
        const char *path = dataset->file(dataset, source, id);
        struct stat st = {0};
        if (stat(path, &st) != 0)
            st.st_mtim.tv_sec = (time_t)time(NULL);
        const int64_t facts[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        if (path[0] != '/')
            sha256_add(&sha, here, strlen(here));
        sha256_add(&sha, path, strlen(path) + 1);
        sha256_add(&sha, facts, sizeof facts);
    }
    const enum status rc = sha256_end(&sha, digest, err);
    sha256_hex(digest, hex);
    memcpy(check->keys[block], hex, KEY_CHARS);
    return rc;
}

static enum status find_known(struct check *check, struct err *err)
{
    enum status rc = OK;
    check->keys = calloc((size_t)check->num_blocks, sizeof *check->keys);
    if (!check->keys)
        return err_nomem(err);
    find_list(check);
    for (int64_t b = 0; rc == OK && b < check->num_blocks; b++) {
        rc = make_key(check, b, err);
        check->wanted[b] = !(check->known && strstr(check->known, check->keys[b]));
    }
    return rc;
}

/* Add the blocks that were read well. A failure is no failure of the run: they are read again. */
static void remember(const struct check *check)
{
    struct atomic_file file = {0};
    const char *old = check->known ? check->known : "";
    const size_t length = strlen(old), most = (size_t)KEYS_MAX * (KEY_CHARS + 1);
    if (!check->list_path || folders_make(check->list_path, false, NULL) != OK ||
        atomic_open(&file, check->list_path, NULL) != OK)
        return;
    fputs(length > most ? old + (length - most) : old, file.out);
    for (int64_t b = 0; b < check->num_blocks; b++)
        if (check->wanted[b] && check->bad[b] == 0)
            fprintf(file.out, "%s\n", check->keys[b]);
    (void)atomic_close(&file, OK, NULL);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The part of this rank in the wanted samples: those with the places [begin, end) among them. */
static void my_part(const struct check *check, int64_t total, int64_t *begin, int64_t *end)
{
    const int64_t rank = check->t->comm->rank, size = check->t->comm->size;
    *begin = total / size * rank + (rank < total % size ? rank : total % size);
    *end = *begin + total / size + (rank < total % size);
}

/* Check samples on all threads. The failure of the first becomes *why, if it holds none yet. */
static void check_round(const struct check *check, const int64_t *numbers, int64_t count,
                        struct err *why)
{
    const struct dataset *dataset = &check->t->dataset;
    struct err best = {0};
    int64_t first = INT64_MAX;
#pragma omp parallel for schedule(dynamic) num_threads(check->t->base.workers[SPLIT_TEST])
    for (int64_t i = 0; i < count; i++) {
        struct err one = {0};
        int64_t id;
        const enum split source = place(check, numbers[i], &id);
        if (dataset->check(dataset, source, id, &one) == OK)
            continue;
#pragma omp critical(data_check)
        {
            check->bad[numbers[i] / BLOCK_FILES]++;
            if (i < first) {
                first = i;
                best = one;
            }
        }
    }
    if (first < INT64_MAX)
        err_copy(why, &best);
}

static void show(const struct check *check, struct ticker *ticker, int64_t done, int64_t of,
                 int64_t total)
{
    char text[200], left[32];
    if (check->t->comm->rank != 0 || !ticker_due(ticker))
        return;
    const double share = of > 0 ? (double)done / (double)of : 1;
    snprintf(text, sizeof text, "checking pictures: %.0f of %lld, %s left", share * (double)total,
             (long long)total, format_left(ticker_left(ticker, share), left, sizeof left));
    ticker_say(ticker, stderr, text);
}

/* Reads this rank's part of the samples in wanted blocks. *total: all of them. */
static enum status read_wanted(const struct check *check, int64_t *total, struct err *why)
{
    static const enum ticker_mode modes[] = {TICKER_QUIET, TICKER_TERMINAL, TICKER_LINES};
    int64_t begin, end, at = 0, count = 0;
    struct ticker ticker;
    *total = 0;
    for (int64_t b = 0; b < check->num_blocks; b++)
        if (check->wanted[b])
            *total += block_end(check, b) - b * BLOCK_FILES;
    my_part(check, *total, &begin, &end);
    ticker_begin(&ticker, modes[check->t->log.mode]);
    for (int64_t b = 0; b < check->num_blocks; b++)
        for (int64_t n = b * BLOCK_FILES; check->wanted[b] && n < block_end(check, b); n++, at++) {
            if (at < begin || at >= end)
                continue;
            check->numbers[count++] = n;
            if (count == check->round || at + 1 == end) {
                check_round(check, check->numbers, count, why);
                count = 0;
                show(check, &ticker, at + 1 - begin, end - begin, *total);
            }
        }
    ticker_clear(&ticker, stderr);
    return why->status;
}

static enum status share_out(struct check *check, struct err *err)
{
    const struct comm *comm = check->t->comm;
    struct err why = {0};
    int64_t total = 0;
    double num_bad = 0;
    enum status rc = comm_agree(comm, comm->rank == 0 ? find_known(check, err) : OK, err);
    THEN(comm_bcast(comm->all, check->wanted, check->num_blocks, 0, err));
    if (rc != OK)
        return rc;
    const enum status mine = read_wanted(check, &total, &why);
    rc = comm_sum_f64(comm->all, check->bad, (int)check->num_blocks, err);
    if (rc != OK)
        return rc;
    for (int64_t b = 0; b < check->num_blocks; b++)
        num_bad += check->bad[b];
    if (comm->rank == 0 && total > 0)
        remember(check);
    rc = comm_agree(comm, mine, &why);
    if (num_bad > 1)
        err_hint(&why, "%.0f of the %lld pictures that were read are such", num_bad,
                 (long long)total);
    return rc == OK ? OK : err_copy(err, &why);
}

enum status data_check(struct trainer *t, struct err *err)
{
    struct check check = {.t = t};
    enum status rc;
    if (!t->dataset.check)
        return OK;
    for (int split = 0; split < SPLIT_COUNT; split++)
        check.first[split + 1] =
            check.first[split] +
            (t->trains || split == SPLIT_TEST ? t->dataset.num_samples[split] : 0);
    check.num_blocks = (num_samples(&check) + BLOCK_FILES - 1) / BLOCK_FILES;
    check.bad = calloc((size_t)check.num_blocks + 1, sizeof *check.bad);
    check.wanted = calloc((size_t)check.num_blocks + 1, 1);
    check.round = ROUND_FILES * (int64_t)t->base.workers[SPLIT_TEST];
    check.numbers = malloc((size_t)check.round * sizeof *check.numbers);
    rc = comm_agree(t->comm, check.bad && check.wanted && check.numbers ? OK : err_nomem(err), err);
    THEN(share_out(&check, err));
    free(check.keys);
    free(check.bad);
    free(check.wanted);
    free(check.numbers);
    free(check.list_path);
    free(check.known);
    return rc;
}
