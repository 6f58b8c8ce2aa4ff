/* Figures of a whole run: `plot freeze` and `breakdown`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/figures/figure_draw.h"
#include "profiles/job/job_json.h"
#include "partition/search/turn.h"
#include "profiles/json/json.h"

/* --- freeze ---------------------------------------------------------------------------------- */

/* Recorded gradient norms of a run, [turn][layer]; of a job, or of a run that recorded none, the
 * norms that the job was given. *norms is NULL if there are none. */
static enum status find_norms(const struct subject *s, int num_layers, double **norms,
                              int *num_turns, struct err *err)
{
    char path[4200];
    struct json *json = NULL;
    const struct fields_source source = {.file = path, .prefix = "norms"};
    const size_t size = (size_t)s->job.norm_epochs * (size_t)num_layers * sizeof **norms;
    enum status rc = OK;
    snprintf(path, sizeof path, "%.4000s/norms.json", s->path);
    if (s->kind == SUBJECT_RUN && access(path, F_OK) == 0) {
        rc = json_read_file(path, &json, err);
        THEN(norms_from_json(json, &source, num_layers, norms, num_turns, err));
        json_free(json);
    } else if (s->job.norms) {
        *norms = malloc(size + 1);
        if (!*norms)
            return err_nomem(err);
        memcpy(*norms, s->job.norms, size);
        *num_turns = s->job.norm_epochs;
    }
    return rc;
}

/* The colour of a norm: from light to dark blue by its logarithm between the least and the most. */
static int norm_colour(double norm, double least, double most)
{
    const double at = most > least ? log(norm / least) / log(most / least) : 1;
    const int red = (int)(222 - at * 214), green = (int)(235 - at * 154),
              blue = (int)(247 - at * 91);
    return red << 16 | green << 8 | blue;
}

static void write_cells(FILE *out, const struct run_rows *rows, int num_layers, const double *norms,
                        int num_turns)
{
    double least = INFINITY, most = 0;
    for (int64_t i = 0; i < (int64_t)num_turns * num_layers; i++)
        if (norms[i] > 0) {
            least = fmin(least, norms[i]);
            most = fmax(most, norms[i]);
        }
    fputs("$cells << EOD\n", out);
    for (int64_t e = 0; e < rows->num_epochs; e++)
        for (int layer = 0; layer < num_layers; layer++) {
            const double norm = e < num_turns ? norms[e * num_layers + layer] : 0;
            const int colour = layer < rows->epochs[e].frozen_layers ? 0xD0D0D0
                               : norm > 0 ? norm_colour(norm, least, most)
                                          : 0x9ECAE1;
            fprintf(out, "%lld %d %d\n", (long long)rows->epochs[e].epoch, layer, colour);
        }
    fputs("EOD\n$prefix << EOD\n", out);
    for (int64_t e = 0; e < rows->num_epochs; e++)
        fprintf(out, "%lld %lld\n%lld %lld\n", (long long)rows->epochs[e].epoch,
                (long long)rows->epochs[e].frozen_layers, (long long)rows->epochs[e].epoch + 1,
                (long long)rows->epochs[e].frozen_layers);
    fputs("EOD\n", out);
}

/* The share of its weight gradients that a plan leaves out of a layer. */
static double share_of_layer(const struct plan *plan, const struct model *model, int layer)
{
    double sum = 0;
    int items = 0;
    for (int s = 0; s < plan->num_stages; s++)
        for (int i = plan->first_item[s]; i < plan->first_item[s + 1]; i++)
            if (model->items[i].layer == layer) {
                sum += shares_mean(&plan->shares, s);
                items++;
            }
    return items ? sum / items : 0;
}

/* By epoch, the plan's shares times the mean of the ramp at its begin and end. Returns whether there
 * are any. */
static bool write_shares(FILE *out, const struct subject *s)
{
    const struct job *job = &s->job;
    int64_t step = 0;
    bool any = false;
    fputs("$shares << EOD\n", out);
    for (int64_t e = 0; s->plan && s->plan->shares.share && e < s->rows.num_epochs; e++) {
        const struct epoch_row *row = &s->rows.epochs[e];
        const double ramp = (turn_ramp(job, step, row->epoch, 0, 1) +
                             turn_ramp(job, step + row->steps, row->epoch, 1, 1)) /
                            2;
        step += row->steps;
        for (int l = (int)row->frozen_layers; l < s->model->num_layers; l++) {
            const double share = ramp * share_of_layer(s->plan, s->model, l);
            any = any || share > 0;
            fprintf(out, "%lld %d %.4f\n", (long long)row->epoch, l, share);
        }
    }
    fputs("0 0 0\nEOD\n", out);
    return any;
}

enum status figure_freeze(struct figure_call *call, struct err *err)
{
    struct subject *s = &call->subjects[0];
    double *norms = NULL;
    int num_turns = 0;
    enum status rc = subject_epochs(s, err);
    if (rc != OK)
        return rc;
    const struct model *model = s->model ? s->model : &s->job.model;
    if (s->rows.num_epochs < 1 || model->num_layers < 1)
        return err_set(err, ERR_INFEASIBLE, "%.200s: no finished epoch of a model with layers",
                       s->path);
    rc = find_norms(s, model->num_layers, &norms, &num_turns, err);
    if (rc != OK)
        return rc;
    if (s->job.freeze.max_share > 0 && s->job.freeze.policy != FREEZE_SAFE &&
        s->kind != SUBJECT_RECORD)
        rc = subject_simulate(s, err); /* for the plan */
    if (rc != OK) {
        free(norms);
        return rc;
    }
    FILE *out = figure_begin(call, 1000, 420);
    const bool shared = write_shares(out, s);
    write_cells(out, &s->rows, model->num_layers, norms, num_turns);
    fprintf(out, "epochs = %lld\nlayers = %d\nnorms = %d\nshared = %d\n",
            (long long)s->rows.epochs[s->rows.num_epochs - 1].epoch + 1, model->num_layers,
            norms != NULL, shared);
    figure_text(call, "heading", "%s: frozen layers by epoch%s", s->word,
                norms ? ", over the gradient norms" : "");
    free(norms);
    return figure_end(call, script_freeze, err);
}

/* --- breakdown ------------------------------------------------------------------------------- */

/* The parts of elastic training, switched off one after the other. */
static const struct {
    const char *name;
    bool no_replicas, no_cut, no_cache;
} variants[] = {
    {"all",               false, false, false},
    {"no new\\nreplicas", true,  false, false},
    {"no new\\ncut",      true,  true,  false},
    {"no\\ncache",        false, false, true },
    {"freezing\\nonly",   true,  true,  true },
};
enum { NUM_VARIANTS = sizeof variants / sizeof variants[0] };

enum status figure_breakdown(struct figure_call *call, struct err *err)
{
    struct subject *s = &call->subjects[0];
    double fixed = 0, rates[NUM_VARIANTS];
    if (s->kind != SUBJECT_JOB)
        return err_set(err, ERR_INPUT, "plot breakdown takes a JOB, got '%.200s'", s->path);
    if (s->job.freeze.policy == FREEZE_NONE)
        return err_set(err, ERR_INFEASIBLE,
                       "%.200s freezes nothing: there are no parts to switch off", s->path);
    enum status rc = subject_static_rate(s, NULL, &fixed, err);
    for (int v = 0; rc == OK && v < NUM_VARIANTS; v++) {
        struct job job = s->job; /* borrows everything */
        job.elastic.auto_dp = job.elastic.auto_dp && !variants[v].no_replicas;
        job.elastic.auto_pipe = job.elastic.auto_pipe && !variants[v].no_cut;
        if (variants[v].no_cache)
            job.cache.policy = CACHE_OFF;
        rc = subject_rate(s, &job, NULL, &rates[v], err);
    }
    if (rc != OK)
        return rc;
    if (!(fixed > 0))
        return err_set(err, ERR_INFEASIBLE, "%.200s: its steps take no time", s->path);
    FILE *out = figure_begin(call, 900, 440);
    fputs("$bars << EOD\n", out);
    for (int v = 0; v < NUM_VARIANTS; v++)
        fprintf(out, "%d %.6g \"%s\" \"%.2f\" %d\n", v, rates[v] / fixed, variants[v].name,
                rates[v] / fixed, v == 0 ? 0x0072B2 : 0x56B4E9);
    fprintf(out, "EOD\ncount = %d\nline = 1\n", NUM_VARIANTS);
    figure_text(call, "line_name", "best static plan");
    figure_text(call, "y_label", "speed, best static plan = 1");
    figure_text(call, "heading", "%s: what each part of elastic training brings (simulated)",
                s->word);
    return figure_end(call, script_bars, err);
}
