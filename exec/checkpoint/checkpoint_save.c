/* exec/checkpoint/checkpoint_save.c - writes a run's state into a folder.
 *
 * Every rank copies the tensors of its stages, and a thread of it writes them into a folder with a
 * temporary name. When the files of all ranks are on disk, rank 0 gathers their digests, adds the
 * manifest and renames the folder. The threads call no MPI: copies for another node (node_copies.h)
 * are sent from the main thread's messages. Read checkpoint_begin() first. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/base/watch.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/checkpoint_files.h"
#include "exec/weights/hf_config.h"
#include "exec/checkpoint/node_copies.h"
#include "exec/checkpoint/owned_folder.h"
#include "exec/weights/safetensors.h"
#include "profiles/base/clock.h"
#include "profiles/base/machine_memory.h"
#include "profiles/base/whole_file.h"
#include "profiles/job/evidence_json.h"
#include "profiles/job/job_json.h"
#include "profiles/json/json.h"

enum { NAME_MAX_BYTES = 128, TEMP_NAMES = 100 };

/* --- tensors ---------------------------------------------------------------------------------- */

static enum status fetch_backend(void *ctx, const void *source, int64_t num_elems, float *values,
                                 struct err *err)
{
    struct backend *be = ctx;
    be->copy_out(be, values, source, num_elems * (int64_t)sizeof *values);
    return be->sync(be, err);
}

/* The tensors that a param may have: the weight, its states, the lagged weight. */
enum { LAGGED = 1 + STAGE_STATES, NUM_SOURCES };

/* Hand a stage's tensors to put(). */
static enum status put_stage(struct stage *stage, const struct checkpoint_state *state,
                             tensor_put put, void *ctx, struct err *err)
{
    struct backend *be = state->list->backend;
    struct param *params = stage_params(stage);
    int n = stage_num_params(stage), count = 0;
    struct tensor_out *tensors = calloc((size_t)n * NUM_SOURCES, sizeof *tensors);
    char(*names)[NAME_MAX_BYTES] = calloc((size_t)n * NUM_SOURCES, sizeof *names);
    enum status rc;
    if (n > 0 && (!tensors || !names)) {
        rc = err_nomem(err);
        goto out;
    }
    for (int i = 0; i < n; i++) {
        const void *sources[NUM_SOURCES] = {params[i].weight};
        for (int s = 0; s < STAGE_STATES; s++)
            sources[1 + s] = params[i].state[s];
        sources[LAGGED] = state->lagged ? stage_lagged(stage, &params[i]) : NULL;
        if (params[i].tied_copy)
            continue;
        for (int j = 0; j < NUM_SOURCES; j++) {
            if (!sources[j])
                continue;
            if (j == 0)
                snprintf(names[count], sizeof *names, "%s", params[i].name);
            else if (j == LAGGED)
                snprintf(names[count], sizeof *names, "lagged.%s", params[i].name);
            else
                snprintf(names[count], sizeof *names, "optimizer.%d.%s", j - 1, params[i].name);
            tensors[count] = (struct tensor_out){.name = names[count],
                                                 .ndim = params[i].ndim,
                                                 .shape = params[i].shape,
                                                 .num_elems = params[i].num_elems,
                                                 .source = sources[j]};
            count++;
        }
    }
    rc = put(ctx, &(struct tensor_source){tensors, count, fetch_backend, be}, err);
out:
    free(tensors);
    free(names);
    return rc;
}

/* A file that a rank has written: what rank 0 needs to know for the manifest. */
struct written {
    int64_t stage;
    struct file_sum sum;
    int64_t copied; /* bytes of the copy in memory; 0: it was written at once */
};

struct part {
    struct written written;
    struct tensor_copy copy;
    char *header; /* owned: what the copy has in front of it in a file for the next node */
};

struct checkpoint_write {
    char dir[PATH_MAX], temp[PATH_MAX]; /* temp: empty until the folder is made */
    char run_id[RUN_ID_SIZE + 1];
    struct json *manifest; /* owned, rank 0: without the files */
    struct part *parts;    /* owned: of this rank */
    int num_parts;
    int64_t left; /* bytes that copies may still take */
    int64_t begin_ns, ns;
    bool per_node, threaded;
    struct node_sends *sends; /* files under way to the next node; NULL: none */
    pthread_t thread;
    atomic_bool done;
    /* Used only by the thread until `done`. */
    enum status rc;
    struct err err;
};

static void add_description(struct json *root, const char *key, struct json *object)
{
    if (object)
        json_add_copy(root, key, object);
    json_free(object);
}

static void add_model(struct json *root, const struct model *model, const struct hf_data *data)
{
    struct json *object = json_add_object(root, "model");
    json_add_string(object, "name", model->name);
    json_add_string(object, "family", model_family_name(model->family));
    json_add_int(object, "layers", model->num_layers);
    json_add_int(object, "hidden", model->hidden);
    json_add_int(object, "heads", model->heads);
    json_add_int(object, "mlp", model->mlp);
    json_add_int(object, "params", model_total_params(model));
    add_description(root, "config", hf_config(model, data));
    add_description(root, "preprocessor", hf_preprocessor(model, data));
    if (data && data->preprocessor)
        json_add_bool(root, "preprocessor_read", true); /* for preprocess.h */
    add_description(root, "tokenizer", hf_tokenizer(model, data));
}

static void add_history(struct json *root, const struct run_history *history)
{
    struct json *object = json_add_object(root, "history");
    json_add_double(object, "first_loss", history->first_loss);
    json_add_double(object, "first_accuracy", history->first_accuracy);
    json_add_int(object, "train_ns", history->train_ns);
}

static void add_norms(struct json *root, const struct turn_norms *norms, int num_layers)
{
    struct json *object, *list;
    if (norms->num_turns > 0)
        norms_to_json(json_add_array(root, "norms"), norms->rows, norms->num_turns, num_layers);
    if (norms->steps <= 0)
        return;
    object = json_add_object(root, "turn");
    json_add_int(object, "steps", norms->steps);
    list = json_add_array(object, "sumsq");
    for (int l = 0; l < num_layers; l++)
        json_add_double(list, NULL, norms->sumsq[l]);
}

/* The manifest without its list of files, which are still to be written. */
static struct json *describe(const struct checkpoint_state *state, int num_ranks)
{
    const struct job *job = state->job;
    const struct progress *progress = state->progress;
    struct json *root = json_object_new();
    char db[PATH_MAX];
    json_add_string(root, "format", "elapse-checkpoint");
    json_add_int(root, "schema", CHECKPOINT_SCHEMA);
    json_add_string(root, "run", state->run_id);
    json_add_int(root, "ranks", num_ranks);
    json_add_int(root, "step", progress->step);
    json_add_int(root, "epoch", progress->epoch);
    json_add_int(root, "position", progress->position);
    json_add_int(root, "frozen_layers", progress->num_frozen_layers);
    if (isfinite(state->eval_loss))
        json_add_double(root, "eval_loss", state->eval_loss);
    add_history(root, &state->history);
    add_norms(root, state->norms, job->model.num_layers);
    if (state->evidence) {
        evidence_to_json(json_add_object(root, "evidence"), &job->model, state->evidence);
        json_add_double(root, "rate", state->rate);
        json_add_double(root, "window_steps", state->steps);
    }
    json_add_string(root, "optimizer", job_optimizer_name(job));
    json_add_int(root, "seed", (int64_t)job->train.seed);
    if (state->db && realpath(state->db, db))
        json_add_string(root, "db", db);
    add_model(root, model_at(&job->model, progress->num_frozen_layers), &state->data);
    json_add_parsed(root, "job", job->json);
    return root;
}

static enum status write_manifest(const char *dir, struct json *root, const struct written *files,
                                  int num_files, struct err *err)
{
    struct json *list = json_add_array(root, "files");
    for (int i = 0; i < num_files; i++) {
        struct json *entry = json_add_object(list, NULL);
        char name[32], hex[SHA256_HEX];
        snprintf(name, sizeof name, "stage-%05d.safetensors", (int)files[i].stage);
        sha256_hex(files[i].sum.sha256, hex);
        json_add_string(entry, "name", name);
        json_add_int(entry, "bytes", files[i].sum.bytes);
        json_add_string(entry, "sha256", hex);
    }
    return checkpoint_manifest_write(dir, root, err);
}

/* --- files ------------------------------------------------------------------------------------ */

static enum status write_part(struct checkpoint_write *write, struct part *part,
                              const struct tensor_source *from, struct err *err)
{
    char *path = NULL;
    if (asprintf(&path, "%s/stage-%05d.safetensors", write->temp, (int)part->written.stage) < 0)
        return err_nomem(err);
    enum status rc = safetensors_write(path, from, &part->written.sum, err);
    free(path);
    return rc;
}

/* Copy the tensors of the last part, or write them now if there is no memory for the copy. */
static enum status put_part(void *ctx, const struct tensor_source *from, struct err *err)
{
    struct checkpoint_write *write = ctx;
    struct part *part = &write->parts[write->num_parts - 1];
    enum status rc = tensor_copy_make(from, write->left, &part->copy, err);
    if (rc == ERR_NOMEM) {
        if (err)
            *err = (struct err){0};
        return write_part(write, part, from, err);
    }
    write->left -= part->copy.bytes;
    part->written.copied = part->copy.bytes;
    return rc;
}

static void *write_copies(void *ctx)
{
    struct checkpoint_write *write = ctx;
    for (int i = 0; write->rc == OK && i < write->num_parts; i++) {
        struct part *part = &write->parts[i];
        if (part->copy.bytes > 0)
            write->rc = write_part(write, part, &part->copy.source, &write->err);
        if (!write->per_node) /* the next node may still read it */
            tensor_copy_clear(&part->copy);
    }
    write->ns = clock_now_ns() - write->begin_ns;
    atomic_store(&write->done, true);
    return NULL;
}

/* The parts of this rank: its stages, and on rank 0 what it keeps of frozen items, as one more. */
static enum status put_parts(struct checkpoint_write *write, const struct comm *comm,
                             const struct checkpoint_state *state, struct err *err)
{
    const struct stage_list *list = state->list;
    enum status rc = OK;
    for (int s = 0; rc == OK && state->write && s < list->num_stages; s++) {
        if (!list->stages[s])
            continue;
        write->parts[write->num_parts++].written.stage = s;
        rc = put_stage(list->stages[s], state, put_part, write, err);
    }
    if (rc == OK && comm->rank == 0 && state->kept && kept_any(state->kept)) {
        write->parts[write->num_parts++].written.stage = list->num_stages;
        rc = kept_put(state->kept, state->job, put_part, write, err);
    }
    return rc;
}

/* Make the temporary folder DIR.tmp, or DIR.tmp-2 and so on to DIR.tmp-MOST where a name is taken.
 * What this run left under such a name when it was killed is removed; what others have put there
 * stays. */
static enum status make_temp(const char *dir, const char *run_id, int most, char temp[PATH_MAX],
                             struct err *err)
{
    for (int n = 1;; n++) {
        struct err why = {0};
        char suffix[16] = "";
        if (n > 1)
            snprintf(suffix, sizeof suffix, "-%d", n);
        if (snprintf(temp, PATH_MAX, "%s.tmp%s", dir, suffix) >= PATH_MAX)
            return err_set(err, ERR_SYSTEM, "path '%.200s' is too long", dir);
        if (!owned_folder_remove(temp, run_id) && n < most)
            continue;
        if (owned_folder_make(temp, run_id, &why) == OK)
            return OK;
        if (access(temp, F_OK) != 0 || n >= most)
            return err_copy(err, &why);
    }
}

/* Give the folder temp the name dir. An older checkpoint of this run there changes places with it
 * and is removed; on a file system that cannot exchange names it is removed first. */
static enum status put_in_place(const char *temp, const char *dir, const char *run_id,
                                struct err *err)
{
    if (renameat2(AT_FDCWD, temp, AT_FDCWD, dir, RENAME_NOREPLACE) == 0)
        return OK;
    if (errno == EEXIST && !owned_folder_is(dir, run_id))
        return err_set(err, ERR_SYSTEM, "cannot write '%s': it exists and belongs to another run",
                       dir);
    if (errno == EEXIST && renameat2(AT_FDCWD, temp, AT_FDCWD, dir, RENAME_EXCHANGE) == 0) {
        (void)owned_folder_remove(temp, run_id);
        return OK;
    }
    if ((errno == EINVAL || errno == ENOSYS) && access(dir, F_OK) == 0 &&
        !owned_folder_remove(dir, run_id))
        return err_set(err, ERR_SYSTEM, "cannot write '%s': it exists and belongs to another run",
                       dir);
    if (rename(temp, dir) != 0)
        return err_set(err, ERR_SYSTEM, "cannot rename '%s' to '%s': %s", temp, dir,
                       strerror(errno));
    return OK;
}

/* --- from begin to end ------------------------------------------------------------------------ */

/* Half of this rank's share of the memory that its machine can still give. */
static int64_t memory_share(const struct comm *comm)
{
    return memory_available() / (2 * (comm->local_size > 0 ? comm->local_size : 1));
}

static void write_free(struct checkpoint_write *write)
{
    for (int i = 0; write->parts && i < write->num_parts; i++) {
        tensor_copy_clear(&write->parts[i].copy);
        free(write->parts[i].header);
    }
    free(write->parts);
    json_free(write->manifest);
    free(write);
}

/* Begin to send this rank's copies to the next node. A part that was written at once, because there
 * was no memory for its copy, cannot be sent. */
static enum status send_parts(struct checkpoint_write *write, const struct comm *comm)
{
    struct node_file *files = calloc((size_t)write->num_parts + 1, sizeof *files);
    enum status rc = files ? write->rc : err_nomem(&write->err);
    for (int i = 0; rc == OK && i < write->num_parts; i++) {
        struct part *part = &write->parts[i];
        struct node_file *file = &files[i];
        *file = (struct node_file){.stage = part->written.stage};
        if (part->copy.bytes == 0)
            rc = err_set(&write->err, ERR_SYSTEM, "no memory for a copy of the stages");
        else
            rc =
                safetensors_header(&part->copy.source, &part->header, &file->bytes[0], &write->err);
        file->part[0] = part->header;
        file->part[1] = part->copy.values;
        file->bytes[1] = part->copy.num_values * (int64_t)sizeof(float);
    }
    rc = comm_agree(comm, rc, &write->err);
    THEN(node_sends_begin(comm, write->temp, files, write->num_parts, &write->sends, &write->err));
    free(files);
    return rc;
}

enum status checkpoint_begin(const struct comm *comm, const char *dir,
                             const struct checkpoint_state *state, bool beside,
                             struct checkpoint_write **write, struct err *err)
{
    struct err own = {0};
    struct checkpoint_write *got = calloc(1, sizeof *got);
    enum status rc = got ? OK : err_nomem(&own);
    if (got) {
        got->begin_ns = clock_now_ns();
        got->left = beside ? memory_share(comm) : 0;
        got->parts = calloc((size_t)state->list->num_stages + 1, sizeof *got->parts);
        if (!got->parts || snprintf(got->dir, sizeof got->dir, "%s", dir) >= PATH_MAX)
            rc = err_nomem(&own);
        snprintf(got->run_id, sizeof got->run_id, "%s", state->run_id);
    }
    rc = comm_agree(comm, rc, &own);
    const bool makes = state->per_node ? comm->local_rank == 0 : comm->rank == 0;
    if (rc == OK && makes)
        rc = make_temp(dir, state->run_id, state->per_node ? 1 : TEMP_NAMES, got->temp, &own);
    const bool made = rc == OK;
    rc = comm_agree(comm, rc, &own);
    THEN(comm_bcast(comm->all, got->temp, sizeof got->temp, 0, &own));
    if (rc != OK) {
        if (got && makes && made && *got->temp)
            (void)owned_folder_remove(got->temp, state->run_id);
        if (got)
            write_free(got);
        return err_copy(err, &own);
    }
    if (comm->rank == 0)
        got->manifest = describe(state, comm->size);
    /* From here on a failure is this rank's own; checkpoint_end() tells the others. */
    got->per_node = state->per_node;
    got->rc = put_parts(got, comm, state, &got->err);
    if (got->per_node)
        got->rc = send_parts(got, comm);
    got->threaded =
        got->rc == OK && beside && pthread_create(&got->thread, NULL, write_copies, got) == 0;
    if (!got->threaded)
        (void)write_copies(got);
    *write = got;
    return OK;
}

bool checkpoint_busy(const struct checkpoint_write *write)
{
    return write && !atomic_load(&write->done);
}

/* All nodes get rank 0's manifest. */
static enum status share_manifest(const struct comm *comm, const struct checkpoint_write *write,
                                  enum status rc, struct err *err)
{
    char *path = NULL;
    if (rc == OK && asprintf(&path, "%s/manifest.json", write->temp) < 0) {
        path = NULL;
        rc = err_nomem(err);
    }
    rc = comm_agree(comm, rc, err);
    THEN(node_share_file(comm->all, 0, path, comm->local_rank == 0 && comm->rank != 0, err));
    free(path);
    return comm_agree(comm, rc, err);
}

/* All files are on disk and the manifest too, so the folder gets its name. */
static enum status finish(struct checkpoint_write *write, enum status rc, struct err *err)
{
    if (rc == OK) /* writing the manifest has synced the folder's names */
        rc = put_in_place(write->temp, write->dir, write->run_id, err);
    if (rc == OK)
        file_sync_name(write->dir);
    return rc;
}

enum status checkpoint_end(const struct comm *comm, struct checkpoint_write *write,
                           struct checkpoint_cost *cost, struct err *err)
{
    struct err own = {0};
    int64_t *sizes = NULL, ns = 0;
    void *all = NULL;
    struct written *files = calloc((size_t)write->num_parts + 1, sizeof *files);
    watch_files(true);
    if (write->threaded)
        pthread_join(write->thread, NULL);
    watch_files(false);
    enum status rc = write->rc;
    own = write->err;
    const enum status sent = node_sends_end(write->sends, &own);
    THEN(sent);
    write->sends = NULL;
    if (rc == OK && !files)
        rc = err_nomem(&own);
    rc = comm_agree(comm, rc, &own);
    for (int i = 0; rc == OK && i < write->num_parts; i++)
        files[i] = write->parts[i].written;
    ns = write->ns;
    THEN(comm_max_i64(comm->all, &ns, 1, &own));
    THEN(comm_gather(comm->all, files, write->num_parts * (int64_t)sizeof *files, &all, &sizes,
                     &own));
    if (comm->rank == 0) {
        const struct written *at = all;
        struct checkpoint_cost got = {.write_ns = ns};
        int num_files = 0;
        for (int r = 0; rc == OK && r < comm->size; r++) {
            int64_t copied = 0;
            for (int64_t i = 0; i < sizes[r] / (int64_t)sizeof *files; i++)
                copied += at[num_files++].copied;
            got.copy_bytes = copied > got.copy_bytes ? copied : got.copy_bytes;
        }
        THEN(write_manifest(write->temp, write->manifest, at, num_files, &own));
        if (rc == OK && cost)
            *cost = got;
    }
    if (write->per_node)
        rc = share_manifest(comm, write, rc, &own);
    if (comm->rank == 0 || (write->per_node && comm->local_rank == 0)) {
        rc = finish(write, rc, &own);
        if (rc != OK)
            (void)owned_folder_remove(write->temp, write->run_id);
    }
    free(files);
    free(sizes);
    free(all);
    write_free(write);
    rc = comm_agree(comm, rc, &own);
    return rc == OK ? OK : err_copy(err, &own);
}

void checkpoint_leave(struct checkpoint_write *write)
{
    if (!write)
        return;
    if (write->threaded)
        pthread_join(write->thread, NULL);
    if (!write->sends) /* else peers may still read the copies: they go with the process */
        write_free(write);
}

enum status checkpoint_save(const struct comm *comm, const char *dir,
                            const struct checkpoint_state *state, struct err *err)
{
    struct checkpoint_write *write = NULL;
    const enum status rc = checkpoint_begin(comm, dir, state, false, &write, err);
    return rc == OK ? checkpoint_end(comm, write, NULL, err) : rc;
}
