#include "cli/figures/report_timeline.h"

#include <inttypes.h>
#include <stdlib.h>

/* Parts of the page, embedded as the page is (cmd_page.c). */
__asm__(".pushsection .rodata\n"
        "timeline_css:\n"
        ".incbin \"page/timeline.css\"\n"
        "timeline_js:\n"
        ".incbin \"page/timeline.js\"\n"
        "timeline_end:\n"
        ".popsection\n");
extern const char timeline_css[], timeline_js[], timeline_end[];

void report_timeline_begin(FILE *out)
{
    fputs("<style>\n", out);
    fwrite(timeline_css, 1, (uintptr_t)timeline_js - (uintptr_t)timeline_css, out);
    fputs("</style>\n<script>\n", out);
    fwrite(timeline_js, 1, (uintptr_t)timeline_end - (uintptr_t)timeline_js, out);
    fputs("</script>\n", out);
}

/* The share of the ranks' time in which no pass and no update runs. */
static double idle_share(const struct op_row *ops, int64_t n, int64_t span_ns)
{
    int64_t ranks = 0, replicas = 0;
    double busy = 0;
    for (int64_t i = 0; i < n; i++) {
        ranks = ops[i].rank >= ranks ? ops[i].rank + 1 : ranks;
        replicas = ops[i].replica >= replicas ? ops[i].replica + 1 : replicas;
        if (ops[i].op.kind <= OP_Z || ops[i].op.kind == OP_UPDATE)
            busy += (double)(ops[i].end_ns - ops[i].start_ns);
    }
    return span_ns > 0 ? 1 - busy / ((double)span_ns * (double)(ranks * replicas)) : 0;
}

static void put_timeline(FILE *out, const char *title, const struct op_row *ops, int64_t n)
{
    int64_t span_ns = 0;
    for (int64_t i = 0; i < n; i++)
        span_ns = ops[i].end_ns > span_ns ? ops[i].end_ns : span_ns;
    page_put(out, "h3", "%s", title);
    fprintf(out,
            "<div></div><script>new Timeline(document.currentScript.previousElementSibling).show("
            "{step_ns: %" PRId64 ", bubble_fraction: %.6f}, [\n",
            span_ns, idle_share(ops, n, span_ns));
    for (int64_t i = 0; i < n; i++)
        fprintf(out, "[%" PRId64 ",%" PRId64 ",\"%s\",%d,%d,%" PRId64 ",%" PRId64 "],\n",
                ops[i].replica, ops[i].rank, op_kind_name((enum op_kind)ops[i].op.kind),
                ops[i].op.stage, ops[i].op.microbatch, ops[i].start_ns, ops[i].end_ns);
    fputs("].map(([replica, rank, op, stage, microbatch, start, end]) => "
          "({replica, rank, op, stage, microbatch, start, end})));</script>\n",
          out);
}

enum status report_timelines(FILE *out, struct subject *subject, struct err *err)
{
    const struct op_row *ops = NULL;
    int64_t n = 0;
    enum status rc = subject_real_ops(subject, &ops, &n, err);
    if (rc == OK && subject->sim) {
        struct op_row *simulated = sim_op_rows(subject->sim);
        if (!simulated)
            return err_nomem(err);
        put_timeline(out, "Simulated step", simulated, subject->sim->num_ops);
        free(simulated);
    }
    if (rc == OK && n > 0)
        put_timeline(out, "Measured step", ops, n);
    return rc;
}
