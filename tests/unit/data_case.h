/* tests/unit/data_case.h - a folder of small files made by a test, and jobs that read it. Include in one
 * file of a test only. */
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/data/dataset_open.h"
#include "exec/data/dataset.h"
#include "tests/unit/test.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/elapse-case.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char *inner = NULL;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (asprintf(&inner, "%s/%s", path, entry->d_name) < 0)
            break;
        if (unlink(inner) != 0)
            remove_tree(inner);
        free(inner);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

static inline char *in_folder(const char *name)
{
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static inline void put_bytes(const char *name, const void *bytes, size_t count)
{
    FILE *out = fopen(in_folder(name), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    assert_int_equal(fclose(out), 0);
}

static inline void put_text(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

/* A job for a model and a kind of data in the folder; job_clear() releases it. */
static inline void make_job(struct job *job, const char *model, enum data_kind kind,
                            const char *path, const char *vocab)
{
    struct err err = {0};
    job_defaults(job);
    if (model_parse(model, &job->model, &err) != OK)
        fail_msg("%s", err.msg);
    job->data.kind = kind;
    job->data.path = strdup(in_folder(path));
    job->data.vocab = vocab ? strdup(in_folder(vocab)) : NULL;
    strcpy(job->name, "case");
}

/* Opening fails with a status and these words in the message; nothing is left behind. */
static inline void refuse_open(const struct job *job, enum status status, const char *words)
{
    struct dataset data = {0};
    struct err err = {0};
    enum status rc = dataset_open(job, &data, &err);
    if (rc == OK)
        dataset_clear(&data);
    if (rc != status || !strstr(err.msg, words))
        fail_msg("status %d '%s', wanted %d '%s'", rc, err.msg, status, words);
    assert_null(data.ctx);
}

/* Every allocation of an opening fails in turn. */
#ifdef FAIL_MALLOC
static inline void open_without_memory(const struct job *job)
{
#if FAIL_MALLOC
    int n = 0;
    for (;; n++) {
        struct dataset data = {0};
        struct err err = {0};
        fail_malloc_after(n);
        enum status rc = dataset_open(job, &data, &err);
        if (fail_malloc_done()) {
            assert_int_equal(rc, OK);
            dataset_clear(&data);
            break;
        }
        if (rc == OK) /* a library that did without */
            dataset_clear(&data);
        else if (rc != ERR_NOMEM && rc != ERR_INPUT && rc != ERR_SYSTEM)
            fail_msg("allocation %d: status %d '%s'", n, rc, err.msg);
        assert_true(n < 100000);
    }
    assert_true(n > 2);
#else
    (void)job;
#endif
}
#endif
