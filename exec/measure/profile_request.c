#include "exec/measure/profile_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/device/device_info.h"
#include "exec/device/devices.h"
#include "partition/base/units.h"
#include "profiles/job/job_json.h"
#include "profiles/store/store.h"

/* Before a run: for how long is measured, and up to which micro-batch. */
#define RUN_NS ((int64_t)5000000000)
#define MOST_SAMPLES 32

/* Read the texts of the request. */
static enum status check(struct profile_request *q, int64_t **sizes, struct err *err)
{
    const size_t room = sizeof((struct profile_info *)0)->name;
    int num = 0;
    q->measure.device = strcmp(q->device, "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU;
    if (strcmp(q->device, device_kind_names[q->measure.device]) != 0)
        return err_set(err, ERR_INPUT, "--device must be cpu or cuda, got '%s'", q->device);
    enum status rc = parse_int_list(q->sizes_text, "--microbatches", 1, 1 << 20, sizes, &num, err);
    for (int i = 0; rc == OK && i < num; i++)
        for (int j = 0; rc == OK && j < i; j++)
            if ((*sizes)[i] == (*sizes)[j])
                rc = err_set(err, ERR_INPUT, "--microbatches: value %d is %lld as value %d", i + 1,
                             (long long)(*sizes)[i], j + 1);
    if (rc == OK && q->name && (!*q->name || strlen(q->name) >= room))
        rc = err_set(err, ERR_INPUT, "--name must be 1..%zu bytes long", room - 1);
    q->measure.samples = *sizes;
    q->measure.num_samples = num;
    return rc;
}

/* The sizes that a quick or a stopped profile has not measured, alone or with all ranks: "4, 8". */
static const char *left_out(const struct measure_options *asked, const struct profile *profile,
                            char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < asked->num_samples; i++) {
        int rows = 0, first = 0;
        for (int j = 0; j < profile->num_layers; j++) {
            const struct layer_row *row = &profile->layers[j];
            rows += strcmp(row->pass, "fwd") == 0 && row->samples == asked->samples[i];
            first += strcmp(row->pass, "fwd") == 0 && row->samples == asked->samples[0];
        }
        if (rows < first && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%lld", used ? ", " : "",
                                     (long long)asked->samples[i]);
    }
    return text;
}

static enum status print(const struct profile_request *q, const struct profile *profile,
                         const struct json *run, struct err *err)
{
    const struct profile_noise noise = profile_noise(profile);
    enum status rc = OK;
    int rows = 0;
    for (int i = 0; i < PROFILE_TABLES; i++)
        rows += profile_num_rows(profile, &profile_tables[i]);
    if (q->json) {
        struct json *root = json_object_new();
        json_add_int(root, "schema", 1);
        json_add_string(root, "version", ELAPSE_VERSION);
        json_add_string(root, "command", "profile");
        json_add_string(root, "name", profile->info.name);
        for (const struct json *m = json_first(run); m; m = json_next(m))
            json_add_copy(root, json_key(m), m);
        json_add_int(root, "rows", rows);
        json_add_int(root, "layer_rows", profile->num_layers);
        json_add_int(root, "link_rows", profile->num_links);
        json_add_double(root, "mean_spread", noise.mean);
        json_add_double(root, "worst_spread", noise.worst);
        json_add_int(root, "noisy_rows", noise.num_noisy);
        json_add_bool(root, "noisy", noise.mean > PROFILE_NOISY);
        rc = json_write(root, false, stdout, err);
        json_free(root);
    } else {
        printf("profile %s: %s (%s, %s) into %s\n"
               "spread (p90 - p10) / median of layers: mean %.1f %%, worst %.1f %%\n",
               profile->info.name, COUNT_TEXT(rows, "row"),
               COUNT_TEXT(profile->num_layers, "layer"), COUNT_TEXT(profile->num_links, "link"),
               json_string(json_get(run, "db")), 100 * noise.mean, 100 * noise.worst);
    }
    char text[160];
    if (rc == OK && *left_out(&q->measure, profile, text, sizeof text))
        fprintf(stderr,
                "note: not all phases have micro-batches of %s, because time ran out; plans "
                "derive their times from the sizes that were measured\n",
                text);
    if (rc == OK && noise.mean > PROFILE_NOISY)
        fprintf(stderr,
                "note: this machine is too noisy for a profile to rely on: repeats of a layer "
                "spread by %.0f %% on average, %d of %d rows beyond %.0f %%; measure again when "
                "nothing else runs\n",
                100 * noise.mean, noise.num_noisy, noise.num_rows, 100 * PROFILE_NOISY);
    return rc;
}

/* Store the profile under its name, with a note if it is noisy or incomplete. */
static enum status keep(const struct measure_options *asked, struct profile *profile,
                        struct store *store, struct err *err)
{
    const struct profile_noise noise = profile_noise(profile);
    char *note = profile->info.note, text[128];
    const size_t size = sizeof profile->info.note;
    if (noise.mean > PROFILE_NOISY)
        snprintf(note, size, "noisy: repeats of a layer spread by %.0f %% on average; ",
                 100 * noise.mean);
    if (*left_out(asked, profile, text, sizeof text))
        snprintf(note + strlen(note), size - strlen(note),
                 PROFILE_INCOMPLETE " not all phases have micro-batches of %s", text);
    else if (*note)
        note[strlen(note) - 2] = '\0';
    return store_put_profile(store, profile, PROFILE_MERGE, err);
}

enum status profile_request_run(struct profile_request *q, const struct comm *comm, struct err *err)
{
    int64_t *sizes = NULL;
    struct model model = {0};
    struct cores cores;
    struct profile profile = {0};
    struct store *store = NULL;
    enum status rc = check(q, &sizes, err);
    THEN(model_load(q->model_text, &model, err));
    if (rc == OK && !model_family_traits(model.family)->trainable)
        rc = err_set(err, ERR_INFEASIBLE, "model '%s' of family %s has no layers to measure",
                     model.name, model_family_name(model.family));
    THEN(cores_bind(comm->local_rank, comm->local_size, (int)q->threads, &cores, err));
    THEN(device_describe(q->measure.device, &cores, &profile.info, err));
    if (rc == OK && comm->rank == 0) /* before the minutes; without a device there is none */
        rc = store_open(q->db, STORE_WRITE, &store, err);
    rc = comm_agree(comm, rc, err);
    if (rc == OK && comm->rank == 0 && q->measure.device == DEVICE_CPU)
        cores_report(&cores, comm->local_size, stderr);
    q->measure.store = store;
    THEN(measure_machine(comm, &cores, &model, &q->measure, &profile, err));
    if (rc == OK && comm->rank == 0) {
        if (q->name)
            snprintf(profile.info.name, sizeof profile.info.name, "%s", q->name);
        rc = keep(&q->measure, &profile, store, err);
    }
    if (rc == OK && comm->rank == 0) {
        struct json *run = json_object_new();
        json_add_string(run, "db", store_path(store));
        json_add_string(run, "model", model.name);
        json_add_int(run, "ranks", comm->size);
        json_add_int(run, "threads_per_rank", cores.threads);
        rc = json_check(run, err);
        THEN(print(q, &profile, run, err));
        json_free(run);
    }
    store_close(store);
    profile_clear(&profile);
    model_clear(&model);
    free(sizes);
    return rc;
}

/* `samples`, or, if that is 0, those of a micro-batch that the job's plan may have, up to MOST_SAMPLES;
 * returns how many. Times of others are interpolated, or continued. */
static int sizes_of_run(const struct job *job, int64_t samples, int64_t *sizes)
{
    const int64_t batch = job->train.batch, count = job->pipeline.num_microbatches,
                  fixed = samples > 0                ? samples
                          : job->train.micro != AUTO ? job->train.micro
                          : count != AUTO            ? (batch + count - 1) / count
                                                     : 0;
    int n = 0;
    if (samples > 0 || (fixed > 0 && fixed <= MOST_SAMPLES))
        sizes[n++] = fixed;
    for (int64_t size = 1; n == 0 || (fixed == 0 && size <= batch && size <= MOST_SAMPLES);
         size *= 2)
        sizes[n++] = size;
    return n;
}

enum status profile_for_run(const struct comm *comm, const struct cores *cores,
                            const struct job *job, int64_t samples, const char *db, struct err *err)
{
    int64_t sizes[6]; /* 1 .. MOST_SAMPLES */
    struct measure_options options = {.device = DEVICE_CPU,
                                      .samples = sizes,
                                      .num_samples = sizes_of_run(job, samples, sizes),
                                      .dropout = job->train.dropout > 0,
                                      .quick_ns = RUN_NS,
                                      .for_run = true,
                                      .progress = TICKER_QUIET};
    struct profile profile = {0};
    struct store *store = NULL;
    enum status rc = device_describe(DEVICE_CPU, cores, &profile.info, err);
    if (rc == OK && comm->rank == 0)
        rc = store_open(db, STORE_WRITE, &store, err);
    rc = comm_agree(comm, rc, err);
    options.store = store;
    THEN(measure_machine(comm, cores, &job->model, &options, &profile, err));
    const double noise = rc == OK && comm->rank == 0 ? profile_noise(&profile).mean : 0;
    if (noise > PROFILE_NOISY)
        rc = err_set(err, ERR_INFEASIBLE,
                     "it is too busy to be measured, repeats of a layer spread by %.0f %%",
                     100 * noise);
    if (rc == OK && comm->rank == 0)
        rc = keep(&options, &profile, store, err);
    rc = comm_agree(comm, rc, err);
    store_close(store);
    profile_clear(&profile);
    return rc;
}
