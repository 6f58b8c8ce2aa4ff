/* Figures of a whole run: `plot freeze` and `breakdown`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/figures/figure_draw.h"
#include "partition/base/units.h"
#include "profiles/job/job_json.h"
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
        if (rc == OK)
            rc = norms_from_json(json, &source, num_layers, norms, num_turns, err);
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
    FILE *out = figure_begin(call, 1000, 420);
    write_cells(out, &s->rows, model->num_layers, norms, num_turns);
    fprintf(out, "epochs = %lld\nlayers = %d\nnorms = %d\n",
            (long long)s->rows.epochs[s->rows.num_epochs - 1].epoch + 1, model->num_layers,
            norms != NULL);
    figure_text(call, "heading", "%s: frozen layers by epoch%s", s->word,
                norms ? ", over the gradient norms" : "");
    free(norms);
    return figure_end(call, "freeze", err);
}

/* --- breakdown ------------------------------------------------------------------------------- */

/* The parts of elastic training, switched off one after the other. */
static const struct {
    const char *name;
    const char *sets[4];
} variants[] = {
    {"all",               {NULL}                                                    },
    {"no new\\nreplicas", {"elastic.auto_dp=false", NULL}                           },
    {"no new\\ncut",      {"elastic.auto_pipe=false", "elastic.auto_dp=false", NULL}},
    {"no\\ncache",        {"cache.policy=off", NULL}                                },
    {"freezing\\nonly",
     {"elastic.auto_pipe=false", "elastic.auto_dp=false", "cache.policy=off", NULL} },
};
enum { NUM_VARIANTS = sizeof variants / sizeof variants[0] };

/* Samples per second of the job with more overrides. */
static enum status variant_rate(const struct subject *s, const char *const *sets, int num_sets,
                                double *per_s, struct err *err)
{
    struct sim_args args = {.job_path = s->path};
    struct elastic_run run = {0};
    step_request_init(&args.request);
    args.request.db_path = s->options.db_path;
    if (s->options.overrides)
        args.overrides = *s->options.overrides;
    enum status rc = sim_job_run(&args, (char *const *)sets, num_sets, &run, NULL, err);
    if (rc == OK)
        *per_s = run.total_ns > 0 ? (double)run.samples * 1e9 / (double)run.total_ns : 0;
    elastic_run_clear(&run);
    return rc;
}

enum status figure_breakdown(struct figure_call *call, struct err *err)
{
    struct subject *s = &call->subjects[0];
    double fixed = 0, rates[NUM_VARIANTS];
    static const char *const sets[] = {
        "freeze.policy=none",        "pipeline.num_stages=auto",       "pipeline.num_replicas=auto",
        "pipeline.schedule=auto",    "pipeline.num_microbatches=auto", "train.batch.micro=auto",
        "pipeline.balancer=optimal", "pipeline.frozen=auto",           "pipeline.recompute=auto",
    };
    if (s->kind != SUBJECT_JOB)
        return err_set(err, ERR_INPUT, "plot breakdown takes a JOB, got '%.200s'", s->path);
    if (s->job.freeze.policy == FREEZE_NONE)
        return err_set(err, ERR_INFEASIBLE,
                       "%.200s freezes nothing: there are no parts to switch off", s->path);
    enum status rc = variant_rate(s, sets, sizeof sets / sizeof sets[0], &fixed, err);
    for (int v = 0; rc == OK && v < NUM_VARIANTS; v++) {
        int n = 0;
        while (variants[v].sets[n])
            n++;
        rc = variant_rate(s, variants[v].sets, n, &rates[v], err);
    }
    if (rc != OK)
        return rc;
    if (fixed <= 0)
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
    return figure_end(call, "bars", err);
}
