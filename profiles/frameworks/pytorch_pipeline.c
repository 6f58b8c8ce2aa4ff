/* Schedules and their rules: torch/distributed/pipelining/schedules.py (PyTorch 2.15). The default cut:
 * torchtitan/distributed/pipeline_parallel.py (0.3.0). */
#include "profiles/frameworks/pytorch_pipeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "partition/schedule/schedule.h"
#include "profiles/base/whole_file.h"

/* What PyTorch asks of the number of micro-batches. */
enum microbatch_rule { ANY_NUMBER, AT_LEAST_STAGES, WHOLE_ROUNDS };
static const struct schedule_row {
    const char *theirs, *ours;
    int chunks;
    enum microbatch_rule rule;
} schedules[] = {
    {"1F1B",            "1f1b",        1, AT_LEAST_STAGES},
    {"GPipe",           "gpipe",       1, ANY_NUMBER     },
    {"Interleaved1F1B", "interleaved", 2, WHOLE_ROUNDS   },
    {"LoopedBFS",       "looped-bfs",  2, ANY_NUMBER     },
    {"ZBVZeroBubble",   "zb-v",        2, ANY_NUMBER     },
    {"DualPipeV",       "dualpipe-v",  2, AT_LEAST_STAGES},
};

static bool is_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

/* The modules of each stage: stages have a space between them, modules a comma; norm and lm_head are
 * one block, and rotary_emb, of each stage of AutoModel's, is none. A file has a list of lists. */
static enum status read_parts(const char *text, struct command_job *made, struct err *err)
{
    const bool json = text[0] == '[';
    made->blocks = calloc(strlen(text) + 1, sizeof *made->blocks);
    if (!made->blocks)
        return err_nomem(err);
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, json ? "]" : " ");
        int blocks = 0;
        bool head = false;
        for (const char *m = at; m < at + n;) {
            m += strspn(m, "[]\", ");
            m += strncmp(m, "model.", 6) == 0 ? 6 : 0;
            const size_t k = strcspn(m, "[]\", ");
            const bool last =
                is_word(m, k, "norm") || is_word(m, k, "lm_head") || is_word(m, k, "output");
            if (k == 0 || m >= at + n)
                break;
            blocks += last ? !head : !is_word(m, k, "rotary_emb");
            head = head || last;
            m += k;
        }
        if (blocks > 0)
            made->blocks[made->num_stages++] = blocks;
        at += n + (at[n] != '\0');
    }
    return OK;
}

/* Equal numbers of layers, where the embedding and the head count as layers. */
static enum status cut_by_default(const struct pytorch_pipeline *ask, int num_stages,
                                  struct command_job *made, struct err *err)
{
    const int first = (int)ask->first_less, last = (int)ask->last_less, layers = ask->num_layers;
    const int all = layers + first + last, each = all / num_stages, more = all % num_stages;
    made->blocks = calloc((size_t)num_stages, sizeof *made->blocks);
    if (!made->blocks)
        return err_nomem(err);
    made->num_stages = num_stages;
    for (int s = 0; s < num_stages; s++) {
        const int ends = (s == 0) + (s == num_stages - 1);
        const int taken = (s == 0 ? first : 0) + (s == num_stages - 1 ? last : 0);
        made->blocks[s] = num_stages == 1 ? layers + 2 : each + (s < more) - taken + ends;
        if (made->blocks[s] < 1)
            return err_set(err, ERR_INPUT, "%d layers leave a stage of %d empty", layers,
                           num_stages);
    }
    return OK;
}

/* Refuse a number of micro-batches that PyTorch's schedule refuses. */
static enum status check_microbatches(const struct schedule_row *row, int64_t ranks, int num_stages,
                                      int64_t count, struct err *err)
{
    const int64_t rounds = count / ranks > 1 ? count / ranks : 1;
    if (row->rule == AT_LEAST_STAGES && count < num_stages)
        return err_set(err, ERR_INPUT,
                       "%s needs at least as many micro-batches as stages: %" PRId64 " < %d",
                       row->theirs, count, num_stages);
    if (row->rule == WHOLE_ROUNDS && count % rounds != 0)
        return err_set(err, ERR_INPUT,
                       "%s needs whole rounds: %" PRId64 " micro-batches are not a multiple of "
                       "%" PRId64 " rounds (of PP %" PRId64 ")",
                       row->theirs, count, rounds, ranks);
    return OK;
}

/* Find the schedule whose op lists a file has; *kind stays as it is if none has them. */
static enum status find_lists(struct command_flags *flags, const struct pytorch_pipeline *ask,
                              int num_stages, enum schedule_kind *kind, struct err *err)
{
    char *text = NULL, *lists = NULL;
    struct schedule read = {0};
    bool found = false;
    enum status rc = file_read_text(ask->csv, &text, err);
    THEN(schedule_from_csv(text, ask->csv, &read, err));
    if (rc == OK && (read.num_ranks != ask->ranks || read.num_stages != num_stages ||
                     read.num_microbatches != ask->microbatches))
        rc = err_set(err, ERR_INPUT,
                     "%s has %d ranks, %d stages and %d micro-batches, the layout %" PRId64
                     ", %d and %" PRId64,
                     ask->csv, read.num_ranks, read.num_stages, read.num_microbatches, ask->ranks,
                     num_stages, ask->microbatches);
    THEN(schedule_to_csv(&read, &lists, err));
    for (int k = 0; k < SCHEDULE_SEARCH && rc == OK && !found; k++) {
        struct schedule named = {0};
        char *own = NULL;
        if (schedule_generate((enum schedule_kind)k, read.num_ranks, read.num_microbatches,
                              num_stages / read.num_ranks, &named, NULL) == OK &&
            named.num_stages == num_stages)
            rc = schedule_to_csv(&named, &own, err);
        found = own && strcmp(own, lists) == 0;
        if (found)
            *kind = (enum schedule_kind)k;
        free(own);
        schedule_clear(&named);
    }
    if (rc == OK && !found)
        flags_left_out(flags, "%.100s: its op lists are of no schedule here: %s counts", ask->csv,
                       schedule_kind_name(*kind));
    free(text);
    free(lists);
    schedule_clear(&read);
    return rc;
}

static const struct schedule_row *row_of(const char *schedule)
{
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        if (strcasecmp(schedules[i].theirs, schedule) == 0) /* as get_schedule_class() */
            return &schedules[i];
    return NULL;
}

enum status pytorch_pipeline_add(struct command_flags *flags, const struct pytorch_pipeline *ask,
                                 struct command_job *made, struct err *err)
{
    const int64_t ranks = ask->ranks;
    enum status rc = OK;
    const struct schedule_row *const row = row_of(ask->schedule);
    if (!row && ranks > 1)
        return err_set(err, ERR_INPUT, "the pipeline's schedule %.60s is not read", ask->schedule);
    int num_stages = ranks > 1 ? (int)ranks * row->chunks : 1;
    if (ranks > 1 && ask->layers_a_stage > 0)
        num_stages =
            (int)((ask->num_layers + ask->first_less + ask->last_less + ask->layers_a_stage - 1) /
                  ask->layers_a_stage);
    if (ask->parts && ranks > 1) {
        rc = read_parts(ask->parts, made, err);
        num_stages = made->num_stages;
    }
    if (rc == OK && num_stages % ranks != 0)
        rc = err_set(err, ERR_INPUT, "%d stages are not a multiple of PP %" PRId64, num_stages,
                     ranks);
    if (rc == OK && ranks > 1 && !ask->csv && (num_stages > ranks) != (row->chunks > 1))
        rc = err_set(err, ERR_INPUT, "%s runs %s of each rank, not %d stages on %" PRId64 " ranks",
                     row->theirs, row->chunks > 1 ? "several stages" : "one stage", num_stages,
                     ranks);
    if (rc == OK && ranks > 1 && !ask->csv)
        rc = check_microbatches(row, ranks, num_stages, ask->microbatches, err);
    if (rc == OK && !made->blocks)
        rc = cut_by_default(ask, num_stages, made, err);
    enum schedule_kind kind = SCHEDULE_1F1B;
    if (ranks > 1)
        THEN(schedule_kind_parse(row->ours, &kind, err));
    if (ranks > 1 && ask->csv)
        THEN(find_lists(flags, ask, num_stages, &kind, err));
    job_set_int(made->job, "pipeline.num_stages", ranks);
    job_set_int(made->job, "pipeline.chunks", num_stages / ranks);
    job_set(made->job, "pipeline.schedule", schedule_kind_name(kind));
    return rc;
}
