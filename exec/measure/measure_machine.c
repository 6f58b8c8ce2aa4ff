/* exec/measure/measure_machine.c - the phases of a profile: one rank alone, all ranks busy, links
 * and sums, one rank on all cores. Read measure_machine() first.
 */
#include "exec/measure/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/device/choices.h"
#include "exec/device/cuda_load.h"
#include "exec/device/devices.h"
#include "exec/measure/measure_state.h"
#include "profiles/base/clock.h"

static enum status make_inputs(struct measure *m, struct err *err)
{
    const struct model *model = &m->job.model;
    int64_t n = m->most, seq = model->seq > 2 ? model->seq : 2;
    const bool images = model_has_images(model);
    int64_t pixels = (int64_t)model->channels * model->image * model->image;
    m->ids = calloc((size_t)n, sizeof *m->ids);
    m->labels = calloc((size_t)(n * seq), sizeof *m->labels);
    if (images) {
        m->images = malloc((size_t)(n * pixels) * sizeof *m->images);
        if (m->images)
            measure_fill_normal(m->images, n * pixels, 3);
    } else {
        m->tokens = calloc((size_t)(n * seq), sizeof *m->tokens);
        m->types = calloc((size_t)(n * seq), sizeof *m->types);
        m->lengths = calloc((size_t)n, sizeof *m->lengths);
    }
    if (!m->ids || !m->labels || (images && !m->images) ||
        (!images && (!m->tokens || !m->types || !m->lengths)))
        return err_nomem(err);
    for (int64_t i = 0; i < n; i++) {
        m->ids[i] = i;
        if (m->lengths)
            m->lengths[i] = model->seq;
        for (int64_t j = 0; m->tokens && j < seq; j++) {
            m->tokens[i * seq + j] = (int32_t)((i * 31 + j * 17) % model->vocab);
            if (model->task == TASK_MLM && j >= model_masked_of(model->seq))
                m->labels[i * seq + j] = -100;
        }
    }
    return OK;
}

/* The other ranks sleep while rank 0 measures alone, because a rank that spins in a barrier takes
 * clock speed and cache from it. */
static enum status wait_asleep(const struct comm *comm, struct err *err)
{
    enum status rc = OK;
    char token = 0;
    if (comm->rank == 0) {
        for (int peer = 1; rc == OK && peer < comm->size; peer++) {
            struct comm_request request = {0};
            rc = comm_isend(comm->all, &token, 1, peer, 2, &request, err);
            THEN(comm_wait(&request, err));
        }
    } else {
        struct comm_request request = {0};
        bool done = false;
        rc = comm_irecv(comm->all, &token, 1, 0, 2, &request, err);
        while (rc == OK && !done) {
            usleep(20000);
            rc = comm_test(&request, &done, err);
        }
    }
    return rc;
}

/* One phase, with a fresh backend of this number of threads. The rank that measures alone also times the
 * alternatives of GPU libraries; its choices go into the store, and later phases use them. That
 * rank starts with the stored choices, unless it is to time them anew (--retune). */
static enum status phase(struct measure *m, int threads, bool together, struct err *err)
{
    enum status rc;
    struct store *store = m->options->store;
    const struct profile_info *here = &m->profile->info;
    const bool whole = !together && threads == m->cores->threads;
    const struct backend_spec spec = {.device = device_kind_names[m->options->device],
                                      .dtype = m->job.train.dtype,
                                      .threads = threads,
                                      .local_rank = m->comm->local_rank,
                                      .tune = !together};
    m->backend = backend_new(&spec, err);
    if (!m->backend)
        return err ? err->status : ERR_NOMEM;
    struct backend *be = m->backend;
    rc = OK;
    if (together || !m->options->retune)
        rc = choices_give(together ? m->comm : NULL, store, here, be, err);
    THEN(be->event_new(be, &m->from, err));
    THEN(be->event_new(be, &m->middle, err));
    THEN(be->event_new(be, &m->to, err));
    THEN(measure_layers(m, together, whole && m->job.model.num_skips == 0, err));
    if (rc == OK && !together)
        rc = choices_keep(store, here, be, err);
    if (rc == OK && whole)
        rc = measure_device(m, err);
    if (rc == OK && whole)
        rc = measure_input(m, err);
    if (rc == OK && whole)
        rc = measure_cache(m, err);
    be->event_free(be, m->from);
    be->event_free(be, m->middle);
    be->event_free(be, m->to);
    m->from = m->middle = m->to = NULL;
    backend_free(be);
    m->backend = NULL;
    return rc;
}

/* Begin a phase; the one before, if any, has ended. A quick one gets an equal part of the time that
 * is left, until end_ns. */
static void begin_phase(struct measure *m, const char *what, int64_t end_ns)
{
    const int64_t now = clock_now_ns();
    m->phases_done += m->phase != NULL;
    m->phase = what;
    m->phase_end_ns = now + (end_ns - now) / (m->num_phases - m->phases_done);
    measure_report(m, 0);
}

/* Whether the user has stopped rank 0, which decides for all. Collective. */
static enum status agree_to_stop(const struct comm *comm, bool *stop, struct err *err)
{
    int64_t wanted = measure_stopped();
    enum status rc = comm_bcast(comm->all, &wanted, sizeof wanted, 0, err);
    *stop = wanted != 0;
    return rc;
}

/* All phases, each unless the user has stopped the profile before. Collective. */
static enum status phases(struct measure *m, bool all_cores, int64_t end_ns, struct err *err)
{
    const struct comm *comm = m->comm;
    const struct cores *cores = m->cores;
    bool stop = false;
    enum status rc = OK;
    if (comm->rank == 0) {
        begin_phase(m, "layers, one rank alone", end_ns);
        rc = phase(m, cores->threads, false, err);
    }
    THEN(wait_asleep(comm, err));
    THEN(agree_to_stop(comm, &stop, err));
    if (rc == OK && comm->node_ranks[0] > 1 && !stop) { /* a node has more than one rank */
        begin_phase(m, "layers, all ranks busy", end_ns);
        rc = phase(m, cores->threads, true, err);
        THEN(agree_to_stop(comm, &stop, err));
    }
    if (rc != OK || comm->size == 1 || stop)
        return rc;
    begin_phase(m, "links and all-reduce", end_ns);
    rc = measure_links(m, err);
    /* A run of one rank may use all cores, so that is measured too. */
    if (rc == OK && comm->rank == 0 && all_cores && !measure_stopped()) {
        begin_phase(m, "layers, one rank on all cores", end_ns);
        rc = cores_release(cores, err);
        THEN(phase(m, cores->at_hand, false, err));
    }
    THEN(wait_asleep(comm, err));
    return rc;
}

enum status measure_machine(const struct comm *comm, const struct cores *cores,
                            const struct model *model, const struct measure_options *options,
                            struct profile *profile, struct err *err)
{
    struct measure m = {.comm = comm, .cores = cores, .options = options};
    struct profile got = {.info = profile->info};
    struct cuda_device gpu;
    const int64_t end_ns = clock_now_ns() + options->quick_ns;
    enum status rc;
    const bool all_cores = comm->size > 1 && cores->at_hand > cores->threads &&
                           options->device == DEVICE_CPU && !options->for_run;
    m.profile = &got;
    m.num_phases = 1 + (comm->node_ranks[0] > 1) + (comm->size > 1) + all_cores;
    ticker_begin(&m.progress, comm->rank == 0 ? options->progress : TICKER_QUIET);
    job_defaults(&m.job);
    m.job.train.dtype = model->elem_bytes == 2 ? DTYPE_BF16 : DTYPE_FP32;
    m.job.train.dropout = options->dropout ? 0.1 : 0; /* the probability does not change the time */
    if (options->device == DEVICE_CUDA && cuda_load_device_info(0, &gpu, NULL) == OK)
        m.cache_bytes = gpu.l2_bytes;
    rc = model_copy(model, &m.job.model, err);
    for (int i = 0; i < options->num_samples; i++)
        m.most = options->samples[i] > m.most ? options->samples[i] : m.most;
    THEN(make_inputs(&m, err));
    rc = comm_agree(comm, rc, err);
    const bool alone = rc == OK; /* after this, other ranks may not know of a failure */
    if (rc == OK)
        rc = phases(&m, all_cores, end_ns, err);
    ticker_clear(&m.progress, stderr);
    if (rc != OK && alone)
        comm_fail(comm, err);
    if (rc == OK && comm->rank == 0 && got.num_layers == 0)
        rc = err_set(err, ERR_INFEASIBLE, "profile was stopped before anything was measured");
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
