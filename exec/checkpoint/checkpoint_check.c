/* exec/checkpoint/checkpoint_check.c - compares a checkpoint's files with its manifest, and chooses the
 * newest good checkpoint of a run. Read checkpoint_choose() first. */
#include "exec/checkpoint/checkpoint_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/checkpoint/checkpoint_files.h"
#include "exec/checkpoint/owned_folder.h"

/* --- one checkpoint --------------------------------------------------------------------------- */

enum status checkpoint_file_check(const char *dir, const struct json *manifest, int index,
                                  struct err *err)
{
    struct file_sum want, got;
    char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, checkpoint_file_name(manifest, index)) < 0)
        return err_nomem(err);
    checkpoint_file_sum(manifest, index, &want);
    enum status rc = file_sum_read(path, &got, err);
    if (rc == OK && got.bytes != want.bytes)
        rc = err_set(err, ERR_INPUT, "'%s' is damaged: it has %lld bytes, the manifest says %lld",
                     path, (long long)got.bytes, (long long)want.bytes);
    else if (rc == OK && memcmp(got.sha256, want.sha256, SHA256_BYTES) != 0)
        rc = err_set(err, ERR_INPUT, "'%s' is damaged: its SHA-256 differs from the manifest's",
                     path);
    free(path);
    return rc;
}

enum status checkpoint_check(const char *dir, int part, int num_parts, struct err *err)
{
    struct json *manifest = NULL;
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    const int n =
        rc == OK && checkpoint_has_sums(manifest) ? json_count(json_get(manifest, "files")) : 0;
    for (int i = part; rc == OK && i < n; i += num_parts)
        rc = checkpoint_file_check(dir, manifest, i, err);
    json_free(manifest);
    return rc;
}

static void add_verdict(struct json *list, const char *name, const struct file_sum *sum,
                        const struct err *why)
{
    struct json *entry = json_add_object(list, NULL);
    char hex[SHA256_HEX];
    json_add_string(entry, "name", name);
    if (sum) {
        sha256_hex(sum->sha256, hex);
        json_add_int(entry, "bytes", sum->bytes);
        json_add_string(entry, "sha256", hex);
    }
    json_add_bool(entry, "ok", why->status == OK);
    if (why->status != OK)
        json_add_string(entry, "reason", why->msg);
}

enum status checkpoint_verify(const char *dir, struct json *answer, struct err *err)
{
    struct json *manifest = NULL, *list;
    struct err why = {0};
    enum status rc = checkpoint_manifest(dir, &manifest, &why);
    if (rc == ERR_SYSTEM || rc == ERR_NOMEM)
        return err_copy(err, &why);
    if (rc == OK && !checkpoint_has_sums(manifest))
        err_set(&why, ERR_INPUT, "'%s' comes from an older version and has no digests", dir);
    if (rc == OK) {
        json_add_copy(answer, "step", json_get(manifest, "step"));
        if (json_get(manifest, "run"))
            json_add_copy(answer, "run", json_get(manifest, "run"));
    }
    list = json_array_new();
    add_verdict(list, "manifest.json", NULL, &why);
    bool good = why.status == OK;
    const int n = good ? json_count(json_get(manifest, "files")) : 0;
    for (int i = 0; i < n; i++) {
        struct file_sum sum;
        why = (struct err){0};
        checkpoint_file_sum(manifest, i, &sum);
        good &= checkpoint_file_check(dir, manifest, i, &why) == OK;
        add_verdict(list, checkpoint_file_name(manifest, i), &sum, &why);
    }
    json_add_bool(answer, "ok", good);
    json_add_copy(answer, "files", list);
    json_free(list);
    json_free(manifest);
    return json_check(answer, err);
}

/* --- the choice ------------------------------------------------------------------------------- */

/* Whether a checkpoint's run is that of the folder. Older versions wrote no ids; they fit. */
static enum status check_run(const char *dir, const char *run_id, struct err *err)
{
    struct json *manifest = NULL;
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    const char *id = rc == OK ? json_string(json_get(manifest, "run")) : NULL;
    if (id && *run_id && strcmp(id, run_id) != 0)
        rc = err_set(err, ERR_INPUT, "'%s' belongs to another run", dir);
    json_free(manifest);
    return rc;
}

static enum status agree(const struct comm *comm, enum status rc, struct err *err)
{
    return comm ? comm_agree(comm, rc, err) : rc;
}

/* Check one checkpoint on all ranks. run_id "": of any run. Collective. */
static enum status check_all(const struct comm *comm, const char *dir, const char *run_id,
                             struct err *err)
{
    struct err why = {0};
    enum status rc = *run_id ? check_run(dir, run_id, &why) : OK;
    THEN(checkpoint_check(dir, comm ? comm->local_rank : 0, comm ? comm->local_size : 1, &why));
    rc = agree(comm, rc, &why);
    return rc == OK ? OK : err_copy(err, &why);
}

/* Say that the checkpoint is of an older version, if it is. */
static void note_age(struct checkpoint_choice *choice)
{
    struct json *manifest = NULL;
    const size_t used = strlen(choice->note);
    if (checkpoint_manifest(choice->dir, &manifest, NULL) == OK && !checkpoint_has_sums(manifest))
        snprintf(choice->note + used, sizeof choice->note - used,
                 "%s'%.120s' comes from an older version and has no digests: its files are not "
                 "checked",
                 used ? "; " : "", choice->dir);
    json_free(manifest);
}

/* The checkpoints that rank 0 finds in a run's folder. */
struct found {
    char run_id[RUN_ID_SIZE];
    int64_t *steps; /* owned; the newest first */
    int num;
};

/* Take the newest good one of found->steps. Collective; rank 0 has *found, the others {0}. */
static enum status choose_newest(const struct comm *comm, const char *from, struct found *found,
                                 struct checkpoint_choice *choice, struct err *err)
{
    struct err first = {0};
    enum status rc = OK;
    if (comm)
        rc = comm_bcast(comm->all, found->run_id, sizeof found->run_id, 0, err);
    for (int i = 0; rc == OK; i++) {
        int64_t step = i < found->num ? found->steps[i] : -1;
        struct err why = {0};
        if (comm)
            rc = comm_bcast(comm->all, &step, sizeof step, 0, err);
        if (rc != OK)
            break;
        if (step < 0) {
            err_hint(&first, "no checkpoint of this run can be used; 'elapse train JOB --out DIR' "
                             "begins again in a new folder");
            return err_copy(err, &first);
        }
        if (asprintf(&choice->dir, "%s/checkpoint-%lld", from, (long long)step) < 0) {
            choice->dir = NULL; /* all ranks are about to fail for want of memory */
            return err_nomem(err);
        }
        rc = check_all(comm, choice->dir, found->run_id, &why);
        if (rc == OK) {
            if (first.status != OK)
                snprintf(choice->note, sizeof choice->note,
                         "%.300s; continuing from checkpoint-%lld", first.msg, (long long)step);
            return OK;
        }
        free(choice->dir);
        choice->dir = NULL;
        if (rc == ERR_NOMEM)
            return err_copy(err, &why);
        err_copy(&first, &why);
        rc = OK;
    }
    return rc;
}

void checkpoint_choice_clear(struct checkpoint_choice *choice)
{
    free(choice->dir);
    free(choice->run);
    *choice = (struct checkpoint_choice){0};
}

enum status checkpoint_choose(const struct comm *comm, const char *from,
                              struct checkpoint_choice *choice, struct err *err)
{
    const bool finds = !comm || comm->rank == 0;
    struct found found = {0};
    char *manifest = NULL;
    int whole = 0; /* from is a checkpoint itself */
    enum status rc = OK;
    *choice = (struct checkpoint_choice){0};
    if (finds && asprintf(&manifest, "%s/manifest.json", from) < 0) {
        manifest = NULL;
        rc = err_nomem(err);
    }
    if (rc == OK && finds)
        whole = access(manifest, F_OK) == 0;
    if (rc == OK && finds && !whole)
        rc = run_id_read(from, found.run_id, err);
    if (rc == OK && finds && !whole)
        rc = checkpoint_steps(from, &found.steps, &found.num, err);
    if (rc == OK && finds && !whole && found.num == 0) {
        rc = err_set(err, ERR_SYSTEM, "no checkpoint in '%s'", from);
        err_hint(err,
                 "a checkpoint's folder has a manifest.json, a run's folder has checkpoint-STEP");
    }
    rc = agree(comm, rc, err);
    if (rc == OK && comm)
        rc = comm_bcast(comm->all, &whole, sizeof whole, 0, err);
    if (rc == OK && whole) {
        choice->dir = strdup(from);
        rc = agree(comm, choice->dir ? OK : err_nomem(err), err);
        THEN(check_all(comm, choice->dir, "", err));
    } else if (rc == OK) {
        rc = choose_newest(comm, from, &found, choice, err);
    }
    if (rc == OK) {
        note_age(choice);
    } else { /* the note stays */
        free(choice->dir);
        choice->dir = NULL;
    }
    free(found.steps);
    free(manifest);
    return rc;
}

enum status checkpoint_job(const char *dir, struct json **job, struct err *err)
{
    struct json *manifest = NULL, *box;
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    *job = NULL;
    if (rc != OK)
        return rc;
    const struct json *kept = json_get(manifest, "job");
    char *text = NULL;
    if (kept)
        rc = json_text(kept, false, &text, err);
    if (text) {
        rc = json_parse(text, dir, &box, err);
        if (rc == OK)
            *job = box;
    }
    free(text);
    json_free(manifest);
    return rc;
}
