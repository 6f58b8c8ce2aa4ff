/* Freezing for programs that train by themselves. The rules are those of partition/freeze and
 * partition/search/turn.h; the rows of evidence come from the caller in place of exec/probe/probe.c. */
#include "library/handles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/search/plan_for.h"
#include "partition/search/turn.h"
#include "profiles/job/job_json.h"

struct elapse_freezer {
    struct elapse_job *job; /* borrowed */
    struct freeze freeze;
    struct freeze_history history;
    struct freeze_evidence row; /* of the open measurement */
    int64_t train_samples, probe_source;
    int64_t turn; /* the next one to decide */
    int asked;    /* the prefix that is to be measured next; -1: none */
    bool open;
};

enum elapse_status elapse_freezer_new(struct elapse_job *job,
                                      const struct elapse_freezer_options *given,
                                      struct elapse_freezer **freezer, struct elapse_error *error)
{
    struct elapse_freezer_options options;
    struct call call;
    call_begin(&call);
    copy_in(&options, sizeof options, given);
    struct elapse_freezer *got = calloc(1, sizeof *got);
    enum status rc = got ? OK : err_nomem(&call.err);
    THEN(freeze_init(&got->freeze, &job->job.freeze, job->job.model.num_layers, &call.err));
    if (rc == OK) {
        got->job = job;
        got->asked = -1;
        got->train_samples =
            options.train_samples > 0 ? options.train_samples : job_num_samples(&job->job, true);
        got->probe_source = options.probe_source;
        got->freeze.passes = job_probe_passes(&job->job, got->train_samples, got->probe_source);
        got->freeze.keeps = job_probe_keeps(&job->job, got->train_samples, got->probe_source);
        *freezer = got;
    } else {
        free(got);
    }
    return call_end(&call, rc, error);
}

void elapse_freezer_free(struct elapse_freezer *freezer)
{
    if (!freezer)
        return;
    freeze_clear(&freezer->freeze);
    freeze_evidence_clear(&freezer->row);
    freeze_history_clear(&freezer->history);
    free(freezer);
}

void elapse_freezer_info(const struct elapse_freezer *freezer, struct elapse_freezer_info *info)
{
    const struct freeze_spec *spec = freezer->freeze.spec;
    const struct freeze_safe *safe = &freezer->freeze.safe;
    const int64_t run = job_run_samples(&freezer->job->job, freezer->train_samples);
    const struct elapse_freezer_info ours = {
        .policy = freeze_policy_name(spec->policy),
        .num_layers = freezer->freeze.num_layers,
        .num_frozen = freezer->freeze.num_frozen,
        .uses_norms = freeze_uses_norms(spec->policy),
        .uses_evidence = spec->policy == FREEZE_SAFE,
        .every_steps = spec->every_steps,
        .probe_samples = freeze_safe_probe(spec->probe, run, freezer->probe_source),
        .max_loss = spec->max_loss,
        .spent = safe->cost + safe->last,
        .spent_se = sqrt(safe->var + safe->last_var),
    };
    copy_out(&ours, sizeof ours, info);
}

/* The predicted time a sample with F layers frozen, in a plan of its own; 0: there is none. */
static double predict(const struct elapse_freezer *freezer, int frozen)
{
    const struct job *job = &freezer->job->job;
    const struct setting setting = {&job->model, &job->cluster, &freezer->job->cost.cost};
    const struct run_state state = {.turn = freezer->turn,
                                    .num_frozen_layers = frozen,
                                    .num_samples = freezer->train_samples,
                                    .cache_room = job->cache.policy != CACHE_OFF,
                                    .cache_filled = job->cache.policy != CACHE_OFF};
    struct planner_result result = {0};
    double sample_ns = 0;
    if (plan_for(job, &setting, &state, NULL, &result, NULL) == OK && result.samples_per_s > 0)
        sample_ns = 1e9 / result.samples_per_s;
    planner_result_clear(&result);
    return sample_ns;
}

/* Predict for F as it is and at its most; the policy interpolates. */
static enum status predict_ends(struct elapse_freezer *freezer, struct err *err)
{
    const int wanted[2] = {freezer->freeze.num_frozen, freeze_cap(&freezer->freeze)};
    double *sample_ns = calloc((size_t)freezer->freeze.num_layers + 1, sizeof *sample_ns);
    if (!sample_ns)
        return err_nomem(err);
    freezer->row.sample_ns = sample_ns;
    for (int i = 0; i < 2; i++)
        sample_ns[wanted[i]] = predict(freezer, wanted[i]);
    return OK;
}

enum elapse_status elapse_freezer_begin(struct elapse_freezer *freezer,
                                        const struct elapse_freeze_window *given, int *due,
                                        struct elapse_error *error)
{
    struct elapse_freeze_window window;
    struct call call;
    call_begin(&call);
    copy_in(&window, sizeof window, given);
    enum status rc = OK;
    *due = 0;
    if (!(window.turn >= 0 && window.step >= 0 && window.steps_window >= 0 &&
          window.rate_window >= 0 && window.steps_left >= 0 && window.rate_left >= 0))
        rc = err_set(&call.err, ERR_INPUT, "a window's numbers must not be negative");
    freeze_evidence_clear(&freezer->row);
    freezer->open = false;
    freezer->asked = -1;
    if (rc == OK && freezer->freeze.spec->policy == FREEZE_SAFE) {
        freezer->row = (struct freeze_evidence){.turn = window.turn,
                                                .step = window.step,
                                                .num_frozen = freezer->freeze.num_frozen,
                                                .rate_window = window.rate_window,
                                                .steps_window = window.steps_window,
                                                .rate_left = window.rate_left,
                                                .steps_left = window.steps_left};
        freezer->open = freeze_safe_due(&freezer->freeze, &freezer->history, &freezer->row);
        if (freezer->open)
            rc = predict_ends(freezer, &call.err);
        *due = rc == OK && freezer->open;
    }
    return call_end(&call, rc, error);
}

void elapse_freezer_ask(struct elapse_freezer *freezer, int *frozen)
{
    freezer->asked = -1;
    if (freezer->open) {
        freezer->row.passes =
            freeze_safe_row_passes(&freezer->freeze, &freezer->history, &freezer->row);
        freezer->asked = freeze_safe_ask(&freezer->freeze, &freezer->history, &freezer->row);
    }
    *frozen = freezer->asked;
}

enum elapse_status elapse_freezer_losses(struct elapse_freezer *freezer,
                                         const struct elapse_freeze_losses *given,
                                         struct elapse_error *error)
{
    struct elapse_freeze_losses losses;
    struct call call;
    call_begin(&call);
    copy_in(&losses, sizeof losses, given);
    enum status rc = OK;
    if (!freezer->open)
        rc = err_set(&call.err, ERR_INPUT, "no window is due");
    else if (!isfinite(losses.loss) || !isfinite(losses.loss_before) || !(losses.fall_se >= 0) ||
             losses.num_probe < 1)
        rc = err_set(&call.err, ERR_INPUT, "losses must be finite, got %g now and %g before",
                     losses.loss, losses.loss_before);
    if (rc == OK) {
        freezer->row.loss = losses.loss;
        freezer->row.loss_before = losses.loss_before;
        freezer->row.fall_se = losses.fall_se;
        freezer->row.accuracy = losses.accuracy >= 0 ? losses.accuracy : (double)NAN;
        freezer->row.num_probe = losses.num_probe;
    }
    return call_end(&call, rc, error);
}

enum elapse_status elapse_freezer_share(struct elapse_freezer *freezer, int frozen, double share,
                                        double share_se, struct elapse_error *error)
{
    struct call call;
    call_begin(&call);
    const struct freeze_candidate candidate = {frozen, share, share_se};
    enum status rc = OK;
    if (!freezer->open || frozen != freezer->asked || frozen < 1)
        rc = err_set(&call.err, ERR_INPUT, "no question about a prefix of %d layers is open",
                     frozen);
    else if (!isfinite(share) || !(share_se >= 0))
        rc = err_set(&call.err, ERR_INPUT, "a share must be finite, got %g +- %g", share, share_se);
    THEN(freeze_evidence_add(&freezer->row, candidate, &call.err));
    if (rc == OK)
        freezer->asked = -1;
    return call_end(&call, rc, error);
}

enum elapse_status elapse_freezer_end(struct elapse_freezer *freezer, struct elapse_error *error)
{
    struct call call;
    call_begin(&call);
    enum status rc = OK;
    if (!freezer->open || freezer->row.num_probe < 1)
        rc = err_set(&call.err, ERR_INPUT, "no window was measured");
    THEN(freeze_history_add(&freezer->history, &freezer->row, &call.err));
    if (rc == OK)
        freezer->open = false;
    return call_end(&call, rc, error);
}

enum elapse_status elapse_freezer_decide(struct elapse_freezer *freezer, int64_t turn,
                                         const double *norms, int num_norms,
                                         const struct elapse_plan *plan,
                                         struct elapse_freeze_decision *decision,
                                         struct elapse_error *error)
{
    const struct job *job = &freezer->job->job;
    struct elapse_freeze_decision ours = {0};
    struct call call;
    call_begin(&call);
    enum status rc = OK;
    if (turn != freezer->turn || turn > INT32_MAX)
        rc = err_set(&call.err, ERR_INPUT, "turn %lld is due, got %lld", (long long)freezer->turn,
                     (long long)turn);
    else if (norms && num_norms != freezer->freeze.num_layers)
        rc = err_set(&call.err, ERR_INPUT, "the model has %d layers, got %d gradient norms",
                     freezer->freeze.num_layers, num_norms);
    if (rc == OK) {
        freezer->freeze.history = &freezer->history;
        freezer->freeze.row = freeze_history_at(&freezer->history, turn - 1);
        rc = freeze_decide(&freezer->freeze, (int)turn, norms, &ours.num_frozen, ours.reason,
                           &call.err);
    }
    if (rc == OK) {
        struct freeze_evidence *row = freeze_history_at(&freezer->history, turn - 1);
        const struct freeze_safe *safe = &freezer->freeze.safe;
        if (row)
            row->verdict = freezer->freeze.verdict;
        freezer->turn = turn + 1;
        ours.lowest = freeze_lowest(&freezer->freeze, (int)turn + 1);
        ours.change = !plan || turn_changes(job, turn, ours.num_frozen, &plan->plan);
        freeze_safe_interval(safe->cost + safe->last, sqrt(safe->var + safe->last_var),
                             &ours.cost_low, &ours.cost_high);
        copy_out(&ours, sizeof ours, decision);
    }
    return call_end(&call, rc, error);
}

enum elapse_status elapse_freeze_choose(const struct elapse_freeze_pass *given,
                                        unsigned char *left_out, struct elapse_error *error)
{
    struct elapse_freeze_pass pass;
    struct call call;
    call_begin(&call);
    copy_in(&pass, sizeof pass, given);
    int choice = 0;
    while (freeze_choice_names[choice] &&
           (!pass.choice || strcmp(freeze_choice_names[choice], pass.choice) != 0))
        choice++;
    enum status rc = OK;
    bool *out = NULL;
    if (!freeze_choice_names[choice])
        rc = err_set(&call.err, ERR_INPUT, "there is no freeze.choice '%s'",
                     pass.choice ? pass.choice : "");
    else if (!(pass.share >= 0 && pass.share <= 1))
        rc = err_set(&call.err, ERR_INPUT, "a share must be 0..1, got %g", pass.share);
    else if (pass.first_item < 0 || pass.end_item <= pass.first_item)
        rc = err_set(&call.err, ERR_INPUT, "a stage of items %d..%d has none", pass.first_item,
                     pass.end_item - 1);
    else if (!(out = malloc((size_t)(pass.end_item - pass.first_item) * sizeof *out)))
        rc = err_nomem(&call.err);
    if (rc == OK) {
        freeze_choose((enum freeze_choice)choice,
                      &(struct freeze_pass){pass.seed, pass.step, pass.microbatch, pass.first_item,
                                            pass.end_item, pass.share, pass.order},
                      out);
        for (int i = 0; i < pass.end_item - pass.first_item; i++)
            left_out[i] = out[i];
    }
    free(out);
    return call_end(&call, rc, error);
}

double elapse_freeze_ramp(const struct elapse_job *job, int64_t step, int64_t epoch,
                          int64_t position, int64_t num_samples)
{
    return turn_ramp(&job->job, step, epoch, position, num_samples);
}
