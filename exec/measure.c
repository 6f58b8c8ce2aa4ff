#include "exec/measure.h"

#include <cblas.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/data/loader.h"
#include "exec/rng.h"
#include "exec/stage.h"
#include "partition/job.h"
#include "partition/units.h"

/* Repeats go on until the budget of a phase is spent, within these limits. */
enum { MIN_REPEATS = 5, MAX_REPEATS = 60, WARM_UP = 2 };
static const int64_t phase_budget_ns = 12000000000, quick_budget_ns = 4000000000;

/* One distinct sublayer under measurement. */
struct probe {
    struct layer_key key;
    int item;
    struct stage *stage;
    float *in, *grad_out;
    double *times; /* [num_samples][PASS_UPDATE passes][MAX_REPEATS], then update's */
};

struct measure {
    const struct comm *comm;
    const struct cores *cores;
    const struct measure_options *options;
    struct job job;
    struct backend *backend;
    struct probe *probes;
    int num_probes;
    int64_t most; /* largest micro-batch */
    float *images;
    int32_t *tokens, *types, *lengths, *labels;
    int64_t *ids;
    struct profile *profile; /* rank 0 */
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double *times_of(const struct measure *m, const struct probe *probe, int size, int pass)
{
    (void)m;
    return probe->times + ((size_t)size * PASS_COUNT + (size_t)pass) * MAX_REPEATS;
}

/* --- layers ----------------------------------------------------------------------------------- */

static void fill_normal(float *values, int64_t n, uint64_t key)
{
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)rng_normal(key, (uint64_t)i);
}

static enum status new_floats(struct backend *be, int64_t elems, uint64_t key, float **values,
                              struct err *err)
{
    void *memory;
    float *host;
    enum status rc = be->alloc(be, elems * (int64_t)sizeof(float), &memory, err);
    if (rc != OK)
        return rc;
    *values = memory;
    host = malloc((size_t)elems * sizeof *host + 1);
    if (!host)
        return err_nomem(err);
    fill_normal(host, elems, key);
    be->copy_in(be, *values, host, elems * (int64_t)sizeof *host);
    rc = be->sync(be, err);
    free(host);
    return rc;
}

static enum status make_probe(struct measure *m, struct probe *probe, struct err *err)
{
    const struct model *model = &m->job.model;
    int item = probe->item;
    struct stage_spec spec = {.model = model,
                              .job = &m->job,
                              .backend = m->backend,
                              .first_item = item,
                              .end_item = item + 1,
                              .max_samples = m->most,
                              .max_live = 1};
    enum status rc = stage_new(&spec, &probe->stage, err);
    if (rc == OK)
        rc = stage_init_weights(probe->stage, 1, err);
    if (rc == OK && item > 0)
        rc = new_floats(m->backend, m->most * stage_input_elems(model, item), 1, &probe->in, err);
    if (rc == OK && item + 1 < model->num_items)
        rc = new_floats(m->backend, m->most * stage_input_elems(model, item + 1), 2,
                        &probe->grad_out, err);
    probe->times =
        calloc((size_t)m->options->num_samples * PASS_COUNT * MAX_REPEATS, sizeof *probe->times);
    return rc == OK && !probe->times ? err_nomem(err) : rc;
}

static void clear_probes(struct measure *m)
{
    for (int i = 0; i < m->num_probes; i++) {
        struct probe *probe = &m->probes[i];
        stage_free(probe->stage);
        if (probe->in)
            m->backend->free(m->backend, probe->in);
        if (probe->grad_out)
            m->backend->free(m->backend, probe->grad_out);
        free(probe->times);
    }
    free(m->probes);
    m->probes = NULL;
    m->num_probes = 0;
}

static enum status make_probes(struct measure *m, struct err *err)
{
    const struct model *model = &m->job.model;
    enum status rc = OK;
    m->probes = calloc((size_t)model->num_items, sizeof *m->probes);
    if (!m->probes)
        return err_nomem(err);
    for (int i = 0; rc == OK && i < model->num_items; i++) {
        struct layer_key key;
        bool known = false;
        layer_key_of(model, i, &key);
        for (int j = 0; j < m->num_probes; j++)
            known |= memcmp(&m->probes[j].key, &key, sizeof key) == 0;
        if (known)
            continue;
        m->probes[m->num_probes].key = key;
        m->probes[m->num_probes].item = i;
        rc = make_probe(m, &m->probes[m->num_probes++], err);
    }
    return rc;
}

/* One repeat of one sublayer at one size: forward, backward for the input, for the weights. */
static enum status time_passes(struct measure *m, struct probe *probe, int size, int repeat,
                               struct err *err)
{
    struct sample_block block = {.num_samples = m->options->samples[size],
                                 .ids = m->ids,
                                 .images = m->images,
                                 .tokens = m->tokens,
                                 .token_types = m->types,
                                 .lengths = m->lengths,
                                 .labels = m->labels};
    float *in[1] = {probe->in}, *out[1] = {NULL}, *grad_out[1] = {probe->grad_out};
    float *grad_in[1] = {NULL};
    struct loss_sums loss;
    struct backend *be = m->backend;
    int64_t at[4];
    enum status rc;
    at[0] = now_ns();
    rc = stage_forward(probe->stage, 0, &block, 0, in, out, true, &loss, err);
    if (rc == OK)
        rc = be->sync(be, err);
    at[1] = now_ns();
    if (rc == OK)
        rc = stage_backward(probe->stage, 0, &block, 0, BACKWARD_INPUT, 1, grad_out, grad_in, err);
    if (rc == OK)
        rc = be->sync(be, err);
    at[2] = now_ns();
    if (rc == OK)
        rc = stage_backward(probe->stage, 0, &block, 0, BACKWARD_WEIGHT, 1, grad_out, grad_in, err);
    if (rc == OK)
        rc = be->sync(be, err);
    at[3] = now_ns();
    for (int pass = 0; repeat >= 0 && pass < PASS_UPDATE; pass++)
        times_of(m, probe, size, pass)[repeat] = (double)(at[pass + 1] - at[pass]);
    return rc;
}

static enum status time_update(struct measure *m, struct probe *probe, int repeat, struct err *err)
{
    int64_t begin = now_ns();
    /* Learning rate 0: the weights stay what they are. */
    enum status rc = stage_update(probe->stage, 0, 0, 1, err);
    if (rc == OK)
        rc = m->backend->sync(m->backend, err);
    if (repeat >= 0)
        times_of(m, probe, 0, PASS_UPDATE)[repeat] = (double)(now_ns() - begin);
    stage_zero_grad(probe->stage);
    return rc;
}

static enum status add_layers(struct measure *m, int repeats, int ranks, struct err *err)
{
    enum status rc = OK;
    for (int i = 0; rc == OK && i < m->num_probes; i++)
        for (int size = 0; rc == OK && size < m->options->num_samples; size++)
            for (int pass = 0; rc == OK && pass < PASS_COUNT; pass++) {
                struct layer_row row = {.threads = m->backend->threads,
                                        .ranks = ranks,
                                        .key = m->probes[i].key,
                                        .samples = m->options->samples[size]};
                if (pass == PASS_UPDATE && size > 0)
                    continue;
                if (pass == PASS_UPDATE)
                    row.samples = 0;
                snprintf(row.backend, sizeof row.backend, "%s", m->backend->name);
                snprintf(row.dtype, sizeof row.dtype, "fp32");
                snprintf(row.pass, sizeof row.pass, "%s", pass_name(pass));
                row.ns = spread_of(times_of(m, &m->probes[i], size, pass), repeats);
                rc = profile_add_layer(m->profile, &row, err);
            }
    return rc;
}

/* All sublayers at all sizes, in turn, repeat by repeat: each finds the caches as the others left
 * them, as in a step, and drift of the machine spreads over all rows alike. `together`: all ranks
 * do the same and leave a repeat together. */
static enum status measure_layers(struct measure *m, bool together, struct err *err)
{
    int64_t budget = m->options->quick ? quick_budget_ns : phase_budget_ns, begin = now_ns();
    int repeat = -WARM_UP;
    enum status rc = OK;
    for (int64_t go_on = 1; rc == OK && go_on; repeat++) {
        for (int size = 0; rc == OK && size < m->options->num_samples; size++)
            for (int i = 0; rc == OK && i < m->num_probes; i++)
                rc = time_passes(m, &m->probes[i], size, repeat, err);
        for (int i = 0; rc == OK && i < m->num_probes; i++)
            rc = time_update(m, &m->probes[i], repeat, err);
        if (repeat < 0)
            continue;
        go_on = repeat + 1 < MAX_REPEATS && (repeat + 1 < MIN_REPEATS || now_ns() - begin < budget);
        if (rc == OK && together)
            rc = comm_bcast(m->comm->all, &go_on, sizeof go_on, 0, err);
    }
    if (rc == OK && m->comm->rank == 0)
        rc = add_layers(m, repeat, together ? m->comm->local_size : 1, err);
    return rc;
}

/* --- links ------------------------------------------------------------------------------------ */

/* Half a round trip between ranks 0 and 1, receive posted ahead as in the runtime. */
static enum status measure_link(struct measure *m, int64_t bytes, char *buffer, struct err *err)
{
    enum { ROUNDS = 40 };
    const struct comm_group *all = m->comm->all;
    double times[ROUNDS];
    enum status rc = OK;
    for (int i = -WARM_UP; rc == OK && i < ROUNDS; i++) {
        struct comm_request send = {0}, recv = {0};
        int peer = 1 - m->comm->rank;
        int64_t begin;
        rc = comm_irecv(all, buffer + bytes, bytes, peer, 1, &recv, err);
        begin = now_ns();
        if (rc == OK && m->comm->rank == 1)
            rc = comm_wait(&recv, err);
        if (rc == OK)
            rc = comm_isend(all, buffer, bytes, peer, 1, &send, err);
        if (rc == OK)
            rc = comm_wait(&send, err);
        if (rc == OK)
            rc = comm_wait(&recv, err);
        if (i >= 0)
            times[i] = (double)(now_ns() - begin) / 2;
    }
    if (rc == OK && m->comm->rank == 0) {
        struct link_row row = {.backend = "mpi", .ranks = 1, .bytes = bytes};
        snprintf(row.place, sizeof row.place, m->comm->num_nodes == 1 ? "node" : "net");
        row.ns = spread_of(times, ROUNDS);
        rc = profile_add_link(m->profile, &row, err);
    }
    return rc;
}

static enum status measure_allreduce(struct measure *m, int64_t bytes, float *buffer,
                                     struct err *err)
{
    enum { ROUNDS = 15 };
    double times[ROUNDS];
    enum status rc = OK;
    memset(buffer, 0, (size_t)bytes);
    for (int i = -WARM_UP; rc == OK && i < ROUNDS; i++) {
        int64_t begin;
        rc = comm_barrier(m->comm->all, err);
        begin = now_ns();
        if (rc == OK)
            rc = comm_allreduce_f32(m->comm->all, buffer, bytes / (int64_t)sizeof *buffer, err);
        if (i >= 0)
            times[i] = (double)(now_ns() - begin);
    }
    if (rc == OK && m->comm->rank == 0) {
        struct collective_row row = {
            .op = "allreduce", .backend = "mpi", .ranks = m->comm->size, .bytes = bytes};
        snprintf(row.place, sizeof row.place, m->comm->num_nodes == 1 ? "node" : "net");
        row.ns = spread_of(times, ROUNDS);
        rc = profile_add_collective(m->profile, &row, err);
    }
    return rc;
}

static enum status measure_links(struct measure *m, struct err *err)
{
    const int64_t most = 4 << 20;
    char *buffer = calloc(1, 2 * (size_t)most);
    enum status rc = comm_agree(m->comm, buffer ? OK : err_nomem(err), err);
    for (int64_t bytes = 1024; rc == OK && bytes <= most; bytes *= 4) {
        if (m->comm->rank < 2)
            rc = measure_link(m, bytes, buffer, err);
        if (rc == OK)
            rc = comm_barrier(m->comm->all, err);
        if (rc == OK && bytes >= 16384)
            rc = measure_allreduce(m, bytes, (float *)(void *)buffer, err);
    }
    free(buffer);
    return rc;
}

/* --- overheads -------------------------------------------------------------------------------- */

/* What the runtime adds to a compute op: two clock readings and the walk over the list. */
static enum status measure_op_overhead(struct measure *m, struct err *err)
{
    enum { ROUNDS = 50, OPS = 1000 };
    double times[ROUNDS];
    struct host_row row = {.what = "op_overhead", .ranks = 1};
    volatile int64_t sink = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t begin = now_ns();
        for (int j = 0; j < OPS; j++)
            sink += comm_now_ns(m->comm) + comm_now_ns(m->comm);
        times[i] = (double)(now_ns() - begin) / OPS;
    }
    snprintf(row.backend, sizeof row.backend, "%s", m->backend->name);
    row.threads = m->backend->threads;
    row.ns = spread_of(times, ROUNDS);
    return profile_add_host(m->profile, &row, err);
}

/* A batch of the procedural set: made, augmented, laid out. */
static enum status measure_input(struct measure *m, struct err *err)
{
    enum { ROUNDS = 5, BATCH = 32 };
    struct dataset dataset = {0};
    struct sampler sampler;
    struct loader *loader = NULL;
    double times[ROUNDS];
    struct host_row row = {.what = "input", .ranks = 1, .samples = BATCH};
    enum status rc = dataset_open(&m->job, &dataset, err);
    if (rc == OK)
        rc = sampler_init(&sampler, dataset.num_samples[SPLIT_TRAIN], 1, true, 1, BATCH, 1, err);
    if (rc == OK) {
        struct loader_spec spec = {
            .dataset = &dataset, .sampler = &sampler, .want_inputs = true, .want_labels = true};
        rc = loader_new(&spec, &loader, err);
    }
    for (int i = 0; rc == OK && i < ROUNDS; i++) {
        const struct batch *batch;
        int64_t begin = now_ns();
        rc = loader_get(loader, 0, i, &batch, err);
        times[i] = (double)(now_ns() - begin);
    }
    if (rc == OK) {
        snprintf(row.backend, sizeof row.backend, "%s", m->backend->name);
        row.ns = spread_of(times, ROUNDS);
        rc = profile_add_host(m->profile, &row, err);
    }
    loader_free(loader);
    dataset_clear(&dataset);
    return rc;
}

/* --- the whole -------------------------------------------------------------------------------- */

static void read_line(const char *path, const char *key, char *to, size_t size)
{
    FILE *in = fopen(path, "r");
    char line[256];
    while (in && fgets(line, sizeof line, in)) {
        char *value = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !value)
            continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(to, size, "%s", value);
        break;
    }
    if (in)
        fclose(in);
}

void measure_describe(const struct cores *cores, struct profile_info *info)
{
    char mhz[32] = "", library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    double load[1] = {0};
    time_t now = time(NULL);
    struct tm utc;
    snprintf(info->source, sizeof info->source, "measured");
    snprintf(info->device_kind, sizeof info->device_kind, "cpu");
    read_line("/proc/cpuinfo", "model name", info->device_name, sizeof info->device_name);
    read_line("/proc/cpuinfo", "cpu MHz", mhz, sizeof mhz);
    info->clock_mhz = (int64_t)strtod(mhz, NULL);
    info->cores = cores->at_hand;
    info->mem_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = '\0';
    snprintf(info->libraries, sizeof info->libraries, "%.60s; %.60s", openblas_get_config(),
             library);
    if (gethostname(info->host, sizeof info->host) != 0)
        snprintf(info->host, sizeof info->host, "unknown");
    info->host[sizeof info->host - 1] = '\0';
    snprintf(info->name, sizeof info->name, "cpu-%.50s", info->host);
    gmtime_r(&now, &utc);
    strftime(info->measured_at, sizeof info->measured_at, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(info->version, sizeof info->version, "%s", ELAPSE_VERSION);
    if (getloadavg(load, 1) == 1)
        info->load = load[0];
}

static enum status make_inputs(struct measure *m, struct err *err)
{
    const struct model *model = &m->job.model;
    int64_t n = m->most, seq = model->seq > 2 ? model->seq : 2;
    int64_t pixels = (int64_t)model->channels * model->image * model->image;
    m->ids = calloc((size_t)n, sizeof *m->ids);
    m->labels = calloc((size_t)(n * seq), sizeof *m->labels);
    if (model->family == FAMILY_VIT) {
        m->images = malloc((size_t)(n * pixels) * sizeof *m->images);
        if (m->images)
            fill_normal(m->images, n * pixels, 3);
    } else {
        m->tokens = calloc((size_t)(n * seq), sizeof *m->tokens);
        m->types = calloc((size_t)(n * seq), sizeof *m->types);
        m->lengths = calloc((size_t)n, sizeof *m->lengths);
    }
    if (!m->ids || !m->labels || (model->family == FAMILY_VIT && !m->images) ||
        (model->family != FAMILY_VIT && (!m->tokens || !m->types || !m->lengths)))
        return err_nomem(err);
    for (int64_t i = 0; i < n; i++) {
        m->ids[i] = i;
        if (m->lengths)
            m->lengths[i] = model->seq;
        for (int64_t j = 0; m->tokens && j < seq; j++)
            m->tokens[i * seq + j] = (int32_t)((i * 31 + j * 17) % model->vocab);
    }
    return OK;
}

/* Others sleep while rank 0 measures by itself: a rank that spins in a barrier takes clocks and
 * cache from it. */
static enum status wait_asleep(const struct comm *comm, struct err *err)
{
    enum status rc = OK;
    char token = 0;
    if (comm->rank == 0) {
        for (int peer = 1; rc == OK && peer < comm->size; peer++) {
            struct comm_request request = {0};
            rc = comm_isend(comm->all, &token, 1, peer, 2, &request, err);
            if (rc == OK)
                rc = comm_wait(&request, err);
        }
    } else {
        struct comm_request request = {0};
        bool done = false;
        rc = comm_irecv(comm->all, &token, 1, 0, 2, &request, err);
        while (rc == OK && !done) {
            usleep(2000);
            rc = comm_test(&request, &done, err);
        }
    }
    return rc;
}

/* One phase with a fresh backend of so many threads. */
static enum status phase(struct measure *m, int threads, bool together, struct err *err)
{
    enum status rc;
    m->backend = backend_cpu_new(threads, err);
    if (!m->backend)
        return err ? err->status : ERR_NOMEM;
    rc = make_probes(m, err);
    if (rc == OK)
        rc = measure_layers(m, together, err);
    if (rc == OK && !together && threads == m->cores->threads) {
        rc = measure_op_overhead(m, err);
        if (rc == OK)
            rc = measure_input(m, err);
    }
    clear_probes(m);
    backend_free(m->backend);
    m->backend = NULL;
    return rc;
}

static void say(const struct measure *m, const char *what)
{
    if (m->comm->rank == 0 && m->options->progress)
        fprintf(stderr, "\rprofile: %s \033[K%s", what, *what ? "" : "\r");
}

enum status measure_machine(const struct comm *comm, const struct cores *cores,
                            const struct model *model, const struct measure_options *options,
                            struct profile *profile, struct err *err)
{
    struct measure m = {.comm = comm, .cores = cores, .options = options};
    struct profile got = {0};
    enum status rc;
    m.profile = &got;
    job_defaults(&m.job);
    rc = model_copy(model, &m.job.model, err);
    for (int i = 0; i < options->num_samples; i++)
        m.most = options->samples[i] > m.most ? options->samples[i] : m.most;
    if (rc == OK)
        rc = make_inputs(&m, err);
    measure_describe(cores, &got.info);
    if (rc == OK && comm->rank == 0) {
        say(&m, "layers, one rank alone");
        rc = phase(&m, cores->threads, false, err);
    }
    if (rc == OK)
        rc = wait_asleep(comm, err);
    if (rc == OK && comm->size > 1) {
        say(&m, "layers, all ranks busy");
        rc = phase(&m, cores->threads, true, err);
        if (rc == OK) {
            say(&m, "links and all-reduce");
            rc = measure_links(&m, err);
        }
        /* One rank that has the machine to itself runs with all cores. */
        if (rc == OK && comm->rank == 0 && cores->at_hand > cores->threads) {
            say(&m, "layers, one rank on all cores");
            rc = cores_release(cores, err);
            if (rc == OK)
                rc = phase(&m, cores->at_hand, false, err);
        }
        if (rc == OK)
            rc = wait_asleep(comm, err);
    }
    say(&m, "");
    if (rc == OK && comm->rank == 0) {
        *profile = got;
        got = (struct profile){0};
    }
    profile_clear(&got);
    free(m.ids);
    free(m.images);
    free(m.tokens);
    free(m.types);
    free(m.lengths);
    free(m.labels);
    job_clear(&m.job);
    return rc;
}
