/* Figures of one simulated step: `plot memory`, `traffic` and `partition`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/figures/figure_draw.h"
#include "cli/simulate/rank_memory.h"
#include "partition/base/units.h"

enum { MAX_SERIES = 16, MAX_CELLS = 64 };

/* A unit in which this many bytes read well. */
static double byte_unit(double bytes, const char **name)
{
    static const char *const names[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    double unit = 1;
    while (u < 4 && bytes / unit >= 2048) {
        unit *= 1024;
        u++;
    }
    *name = names[u];
    return unit;
}

/* Simulate the only subject of a figure; a run without a prediction has nothing to draw. */
static enum status need_step(struct figure_call *call, struct subject **s, struct err *err)
{
    *s = &call->subjects[0];
    enum status rc = subject_simulate(*s, err);
    if (rc == OK && !(*s)->sim)
        rc = err_set(err, ERR_INFEASIBLE, "%.200s cannot be simulated: %.250s", (*s)->path,
                     (*s)->no_sim.msg);
    return rc;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Write the memory of a rank of pipeline 0. */
static enum status write_memory(FILE *out, const struct subject *s, int rank, double time_ns,
                                double unit, struct err *err)
{
    struct memory_point *points = NULL;
    int64_t n = 0;
    const struct traced_step step = {s->sim, s->full, s->workload};
    enum status rc = rank_memory(&step, 0, rank, &points, &n, err);
    fprintf(out, "$s_%d << EOD\n", rank + 1);
    for (int64_t i = 0; rc == OK && i < n; i++)
        fprintf(out, "%.6f %.6f\n", (double)points[i].at_ns / time_ns,
                (double)points[i].bytes / unit);
    fputs("EOD\n", out);
    free(points);
    return rc;
}

/* The memory that a run's rank was measured to hold at most; 0: not recorded. */
static int64_t measured_bytes(const struct subject *s, int device)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->rows.num_memories; i++)
        if (s->rows.memories[i].device == device && strcmp(s->rows.memories[i].what, "total") == 0)
            bytes = s->rows.memories[i].peak_bytes;
    return bytes;
}

enum status figure_memory(struct figure_call *call, struct err *err)
{
    struct subject *s;
    const char *unit_name;
    char plan[128], name[32], text[32], most[32];
    int64_t peak = 1, limit = INT64_MAX;
    enum status rc = need_step(call, &s, err);
    if (rc != OK)
        return rc;
    const int ranks = s->plan->num_ranks < MAX_SERIES ? s->plan->num_ranks : MAX_SERIES;
    for (int k = 0; k < s->plan->num_ranks; k++) {
        const int64_t mem = s->cluster->devices[s->plan->device[k]].mem_bytes;
        peak = s->sim->devices[k].peak_bytes > peak ? s->sim->devices[k].peak_bytes : peak;
        limit = mem < limit ? mem : limit;
    }
    const double unit = byte_unit((double)peak, &unit_name);
    const struct time_unit *time = figure_time_unit(s->sim->step_ns);
    FILE *out = figure_begin(call, 1000, 480);
    fprintf(out, "array titles[%d]\narray types[%d]\narray dashes[%d]\n", ranks, ranks, ranks);
    for (int k = 0; rc == OK && k < ranks; k++) {
        const int64_t measured = measured_bytes(s, s->plan->device[k]);
        rc = write_memory(out, s, k, time->ns, unit, err);
        fprintf(out, "types[%d] = %d\ndashes[%d] = %d\n", k + 1, k + 1, k + 1, 1 + k / 8);
        snprintf(name, sizeof name, "titles[%d]", k + 1);
        format_bytes(s->sim->devices[k].peak_bytes, most, sizeof most);
        if (measured > 0)
            figure_text(call, name, "rank %d: %s (measured %s)", k, most,
                        format_bytes(measured, text, sizeof text));
        else
            figure_text(call, name, "rank %d: at most %s", k, most);
    }
    if (rc != OK)
        return rc;
    /* A limit far above the curves would press them flat; the title names it then. */
    const bool near = limit < INT64_MAX && (double)limit < 4 * (double)peak;
    fprintf(out, "series = %d\nlog_x = 0\nlog_y = 0\nhow = 'steps'\nideal = 0\nlimit = %.6f\n",
            ranks, near ? (double)limit / unit : 0.0);
    figure_text(call, "limit_name", "limit %s", format_bytes(limit, text, sizeof text));
    figure_text(call, "heading", "%s: memory of pipeline 0's devices in a step, %s%s%s", s->word,
                figure_plan_text(s->plan, plan, sizeof plan),
                near || limit == INT64_MAX ? "" : ", limit ",
                near || limit == INT64_MAX ? "" : text);
    figure_text(call, "x_label", "time, %s", time->name);
    figure_text(call, "y_label", "memory, %s", unit_name);
    return figure_end(call, script_lines, err);
}

/* --- traffic --------------------------------------------------------------------------------- */

enum status figure_traffic(struct figure_call *call, struct err *err)
{
    struct subject *s;
    const char *unit_name;
    char plan[128];
    int64_t most = 1;
    enum status rc = need_step(call, &s, err);
    if (rc != OK)
        return rc;
    int devices = s->cluster->num_devices < MAX_CELLS ? s->cluster->num_devices : MAX_CELLS;
    for (int i = 0; i < s->sim->num_traffic; i++)
        most = s->sim->traffic[i].bytes > most ? s->sim->traffic[i].bytes : most;
    const double unit = byte_unit((double)most, &unit_name);
    double *cells = calloc((size_t)devices * (size_t)devices, sizeof *cells);
    if (!cells)
        return err_nomem(err);
    for (int i = 0; i < s->sim->num_traffic; i++) {
        const struct sim_traffic *t = &s->sim->traffic[i];
        if (t->from < devices && t->to < devices)
            cells[t->from * devices + t->to] += (double)t->bytes / unit;
    }
    /* 44 px a device, within limits: two devices need no page, and 64 share one. */
    const int side = devices < 8 ? 320 : devices > 16 ? 512 : 44 * devices;
    FILE *out = figure_begin(call, side + 300, side + 140);
    fputs("$cells << EOD\n", out);
    for (int from = 0; from < devices; from++)
        for (int to = 0; to < devices; to++) {
            const double value = cells[from * devices + to];
            fprintf(out, "%d %d %.6g \"", to, from, value);
            if (value > 0)
                fprintf(out, value < 1000 ? "%.3g" : "%.0f", value);
            fputs("\"\n", out);
        }
    fputs("EOD\n", out);
    free(cells);
    fprintf(
        out,
        "columns = %d\nrows = %d\nlow = 0\nmiddle = %.9g\nlabels = %d\nflip = 1\nset xtics %d\nset "
        "ytics %d\n",
        devices, devices, 0.5 * (double)most / unit, devices <= 16, devices > 16 ? 8 : 1,
        devices > 16 ? 8 : 1);
    figure_text(call, "heading", "%s: bytes between %s in a step, %s%s", s->word,
                layout_tensor(&s->plan->layout) > 1
                    ? "groups of devices (without the collectives in a group)"
                    : "devices",
                figure_plan_text(s->plan, plan, sizeof plan),
                devices < s->cluster->num_devices ? " (the first 64 devices)" : "");
    figure_text(call, "x_label", "to device");
    figure_text(call, "y_label", "from device");
    figure_text(call, "unit", "%s", unit_name);
    return figure_end(call, script_heat, err);
}

/* --- partition ------------------------------------------------------------------------------- */

static int64_t stage_params(const struct subject *s, int stage)
{
    int64_t params = 0;
    for (int i = s->plan->first_item[stage]; i < s->plan->first_item[stage + 1]; i++)
        params += s->model->items[i].params;
    return params;
}

/* The names of a stage: its number, items and parameters, short enough for its share of the axis. */
static void write_stage_name(FILE *out, const struct subject *s, int stage)
{
    enum { WORDS_MAX = 8, NAMES_MAX = 16 };
    const int stages = s->plan->num_stages;
    const int items = s->plan->first_item[stage + 1] - s->plan->first_item[stage];
    const double params = (double)stage_params(s, stage);
    fprintf(out, "\"%d", stage);
    if (stages <= WORDS_MAX)
        fprintf(out, "\\n%s", COUNT_TEXT(items, "item"));
    else if (stages <= NAMES_MAX)
        fprintf(out, "\\n%d", items);
    if (stages <= NAMES_MAX)
        fprintf(out, "\\n%.3g %s", params >= 1e9 ? params / 1e9 : params / 1e6,
                params >= 1e9 ? "B" : "M");
    fputs("\"\n", out);
}

enum status figure_partition(struct figure_call *call, struct err *err)
{
    struct subject *s;
    char plan[128];
    int64_t most = 1;
    double sum = 0;
    enum status rc = need_step(call, &s, err);
    if (rc != OK)
        return rc;
    const int stages = s->plan->num_stages;
    for (int i = 0; i < stages; i++) {
        const struct stage_cost *c = &s->workload->stages[i];
        const int64_t back = c->op_ns[OP_B][MB_FULL] > 0
                                 ? c->op_ns[OP_B][MB_FULL]
                                 : c->op_ns[OP_I][MB_FULL] + c->op_ns[OP_W][MB_FULL];
        most = c->op_ns[OP_F][MB_FULL] + back > most ? c->op_ns[OP_F][MB_FULL] + back : most;
        sum += (double)(c->op_ns[OP_F][MB_FULL] + back);
    }
    const struct time_unit *time = figure_time_unit(most);
    FILE *out = figure_begin(call, 1000, 460);
    fputs("$stages << EOD\n", out);
    for (int i = 0; i < stages; i++) {
        const struct stage_cost *c = &s->workload->stages[i];
        const int64_t back = c->op_ns[OP_B][MB_FULL] > 0
                                 ? c->op_ns[OP_B][MB_FULL]
                                 : c->op_ns[OP_I][MB_FULL] + c->op_ns[OP_W][MB_FULL];
        fprintf(out, "%d %.6f %.6f ", i, (double)c->op_ns[OP_F][MB_FULL] / time->ns,
                (double)back / time->ns);
        write_stage_name(out, s, i);
    }
    fprintf(out, "EOD\nstages = %d\nmean = %.6f\n", stages, sum / stages / time->ns);
    figure_text(call, "unit", "%s", time->name);
    figure_text(call, "heading", "%s: the stages of the cut, %s", s->word,
                figure_plan_text(s->plan, plan, sizeof plan));
    return figure_end(call, script_partition, err);
}
