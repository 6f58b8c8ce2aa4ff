/* cli/figures/cmd_report.c - `elapse report`: one HTML page about runs, recorded simulations, jobs
 * and plan files. Read run_report() at the end first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/base/command.h"
#include "cli/figures/report_subject.h"
#include "cli/figures/report_timeline.h"
#include "partition/base/units.h"
#include "profiles/base/whole_file.h"

/* Several subjects beside each other. */
static enum status put_together(FILE *out, struct subject *subjects, const struct verdict *verdicts,
                                int n, struct err *err)
{
    char time[32];
    int num_stepped = 0;
    struct subject stepped[FIGURE_MAX_RUNS]; /* borrows those that have steps */
    page_put(out, "h2", "All runs");
    page_table(out, "run|steps|training|samples/s|loss|accuracy, %|prediction off by, %");
    for (int i = 0; i < n; i++) {
        const struct verdict *v = &verdicts[i];
        const double values[] = {v->samples_per_s, v->loss_last, 100 * v->accuracy,
                                 100 * v->step_error};
        fputs("<tr><td>", out);
        page_text(out, subjects[i].path);
        fprintf(out, "</td><td>%lld</td><td>%s</td>", (long long)v->steps,
                format_ns(v->total_ns, time, sizeof time));
        for (int c = 0; c < 4; c++)
            if (isfinite(values[c]))
                fprintf(out, "<td>%.*f</td>", c == 1 ? 4 : 1, values[c]);
            else
                fputs("<td>-</td>", out);
        fputs("</tr>\n", out);
        if (subjects[i].rows.num_steps > 0)
            stepped[num_stepped++] = subjects[i];
    }
    page_table_end(out);
    enum status rc = page_figure(out, "throughput", "Throughput by epoch.", subjects, n, err);
    if (rc == OK && num_stepped > 1)
        rc = page_figure(out, "loss", "Training loss of each step, and its mean.", stepped,
                         num_stepped, err);
    return rc;
}

/* The words that figures and tables use. */
static void put_glossary(FILE *out)
{
    static const struct {
        const char *word, *meaning;
    } words[] = {
        {"K",
         "ranks (devices) of one pipeline: the model is cut into K parts, or K times the chunks"      },
        {"R",                "pipelines side by side (replicas); each trains on its own samples"      },
        {"M",                "micro-batches into which a pipeline cuts its samples of a step"         },
        {"F",                "frozen layers: the first F layers run forward only and are not trained" },
        {"bubble",           "share of a step in which a device waits"                                },
        {"item",             "a sublayer of the model, such as attention or MLP; a layer is two items"},
        {"cache",
         "the output of the frozen layers, stored for each sample, so that later epochs read it"      },
        {"change of plan",
         "time between two steps in which the model is cut again and weights move"                    },
        {"best static plan", "the fastest plan without freezing that the planner finds, simulated"    },
    };
    page_put(out, "h2", "Glossary");
    fputs("<dl>\n", out);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        page_put(out, "dt", "%s", words[i].word);
        page_put(out, "dd", "%s", words[i].meaning);
    }
    fputs("</dl>\n", out);
}

static enum status write_page(FILE *out, struct subject *subjects, int n, bool interactive,
                              struct err *err)
{
    struct verdict verdicts[FIGURE_MAX_RUNS];
    char title[128], when[32];
    const time_t now = time(NULL);
    struct tm utc;
    enum status rc = OK;
    for (int i = 0; rc == OK && i < n; i++)
        rc = verdict_find(&subjects[i], &verdicts[i], err);
    if (rc != OK)
        return rc;
    if (n == 1)
        snprintf(title, sizeof title, "Elapse report: %s", subjects[0].word);
    else
        snprintf(title, sizeof title, "Elapse report: %d runs", n);
    page_begin(out, title);
    if (interactive)
        report_timeline_begin(out);
    if (n > 1)
        rc = put_together(out, subjects, verdicts, n, err);
    for (int i = 0; rc == OK && i < n; i++)
        rc = report_subject(out, &subjects[i], &verdicts[i], interactive, err);
    put_glossary(out);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &utc));
    page_put(out, "footer", "elapse %s, %s", ELAPSE_VERSION, when);
    page_end(out);
    return rc;
}

static enum status run_report(const struct command *command, int argc, char **argv, struct err *err)
{
    const char *out_path = NULL;
    bool interactive = false;
    struct subject_options subject = {0};
    struct option_list overrides = {0};
    const struct option options[] = {
        OPTION("o", STRING, &out_path, "FILE", "the page (.html)"),
        OPTION("interactive", FLAG, &interactive, NULL,
               "timelines that zoom and say what each op is, too; the page then has a script"),
        OPTION("set", LIST, &overrides, "a.b=v", "override a value of a job", .keys = &job_keys),
        OPTION("plan", STRING, &subject.plan_path, "FILE",
               "the plan of a job, a file of 'elapse plan -o' (default: the best plan)"),
        OPTION("db", STRING, &subject.db_path, "FILE",
               "profile store of the prediction (the run's own, or the user's)"),
    };
    struct atomic_file page = {0};
    struct command_line line = COMMAND_LINE(options, FIGURE_MAX_RUNS);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    const int n = line.num_positional;
    if (n < 1 || !out_path)
        return err_set(err, ERR_INPUT, "report needs a RUN_DIR or JOB, and -o FILE");
    if ((rc = command_check_page(out_path, err)) != OK)
        return rc;
    struct subject *subjects = calloc((size_t)n, sizeof *subjects);
    if (!subjects)
        return err_nomem(err);
    subject.overrides = &overrides;
    for (int i = 0; rc == OK && i < n; i++)
        rc = subject_open(line.positional[i], &subject, &subjects[i], err);
    if (rc == OK && (rc = output_open(&page, out_path, err)) == OK) {
        rc = write_page(page.out, subjects, n, interactive, err);
        rc = atomic_close(&page, rc, err);
    }
    for (int i = 0; i < n; i++)
        subject_clear(&subjects[i]);
    free(subjects);
    if (rc == OK)
        printf("%s\n", out_path);
    return rc;
}

const struct command command_report = {"report", "RUN_DIR|RECORD|JOB|PLAN_FILE... -o report.html",
                                       "one self-contained page about runs and predictions", "PATH",
                                       run_report};
