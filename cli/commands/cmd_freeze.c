/* cli/commands/cmd_freeze.c - `elapse freeze`: the frozen prefix per epoch.
 *
 * resolve() finds the policy and its data (a table, recorded norms or recorded evidence), and
 * answer() decides for each epoch. */
#include "cli/base/command.h"

#include <math.h>
#include <stdlib.h>

#include "partition/freeze/freeze_replay.h"
#include "partition/model/model.h"
#include "partition/search/turn.h"
#include "partition/base/units.h"
#include "profiles/job/evidence_json.h"
#include "profiles/job/job_json.h"

#define EPOCHS_MAX 10000 /* a limit, because the closed form sums T terms for epoch T */

struct request {
    int64_t num_layers, num_epochs, min_active, warmup;
    const char *policy, *norms_path, *table_path, *evidence_path;
    double alpha, max_loss;
    bool layers_seen, alpha_seen, epochs_seen;
    struct freeze_spec spec;
    double *norms; /* owned, norm_epochs x num_layers */
    int norm_epochs;
    struct freeze_history evidence; /* owned */
};

static bool is_named_table(const char *name)
{
    struct freeze_spec spec = {0};
    bool named = freeze_named_table(name, 1, 1, &spec, NULL) == OK;
    freeze_spec_clear(&spec);
    return named;
}

/* Read --table: a name of a table of the release, or a file with a JSON array of F per epoch. */
static enum status read_table(struct request *q, struct err *err)
{
    const struct fields_source source = {.file = q->table_path, .prefix = "table"};
    const struct count_limits limits = {0, (int)q->num_layers, "layers"};
    struct json *json = NULL;
    if (is_named_table(q->table_path))
        return freeze_named_table(q->table_path, (int)q->num_layers, (int)q->num_epochs, &q->spec,
                                  err);
    enum status rc = json_read_file(q->table_path, &json, err);
    if (rc != OK)
        err_hint(err, "a table is a JSON array of frozen layers per epoch, or one of: mild "
                      "mild-early by_epoch linear");
    else
        rc = counts_from_json(json, &source, &limits, &q->spec.table, &q->spec.num_table, err);
    json_free(json);
    return rc;
}

static enum status read_norms(struct request *q, struct err *err)
{
    const struct fields_source source = {.file = q->norms_path, .prefix = "norms"};
    struct json *json = NULL;
    enum status rc = json_read_file(q->norms_path, &json, err);
    THEN(norms_from_json(json, &source, (int)q->num_layers, &q->norms, &q->norm_epochs, err));
    json_free(json);
    return rc;
}

/* Read --evidence. Layers and epochs that are not given are those of the recorded run. */
static enum status read_evidence(struct request *q, struct err *err)
{
    struct json *json = NULL;
    int num_layers = 0;
    enum status rc = json_read_file(q->evidence_path, &json, err);
    THEN(evidence_from_json(json, q->evidence_path, NULL, &q->evidence, err));
    THEN(evidence_layers(json, q->evidence_path, &num_layers, err));
    if (rc == OK && q->layers_seen && num_layers != q->num_layers)
        rc = err_set(err, ERR_INPUT,
                     "%s belongs to another model: it has %d layers, --layers is %lld",
                     q->evidence_path, num_layers, (long long)q->num_layers);
    json_free(json);
    q->num_layers = num_layers;
    if (rc == OK && !q->epochs_seen && q->evidence.num_rows > 0)
        q->num_epochs = q->evidence.rows[q->evidence.num_rows - 1].turn + 1;
    if (rc == OK && q->num_epochs > EPOCHS_MAX)
        rc = err_set(err, ERR_INPUT, "%s has %lld turns, at most %d can be decided",
                     q->evidence_path, (long long)q->num_epochs, EPOCHS_MAX);
    return rc;
}

/* Refuse a policy without its file, and a file that the policy does not use. */
static enum status check_files(const struct request *q, struct err *err)
{
    const enum freeze_policy policy = q->spec.policy;
    const bool norms =
        policy == FREEZE_RELATIVE_CHANGE || policy == FREEZE_PLATEAU || policy == FREEZE_AUTOFREEZE;
    const struct refusal refused[] = {
        {policy == FREEZE_SAFE && !q->evidence_path,  "needs --evidence"       },
        {policy != FREEZE_SAFE && q->evidence_path,   "does not use --evidence"},
        {policy == FREEZE_TABLE && !q->table_path,    "needs --table"          },
        {policy != FREEZE_TABLE && q->table_path,     "does not use --table"   },
        {norms && !q->norms_path,                     "needs --norms"          },
        {q->norms_path && !freeze_uses_norms(policy), "does not use --norms"   },
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].wrong)
            return err_set(err, ERR_INPUT, "freeze: policy '%s' %s", freeze_policy_name(policy),
                           refused[i].says);
    return OK;
}

/* Find the policy, which --policy names or the given files imply, and read its data. */
static enum status resolve(struct request *q, struct err *err)
{
    enum status rc = OK;
    q->spec.alpha = q->alpha;
    q->spec.min_active = (int)q->min_active;
    q->spec.warmup = (int)q->warmup;
    q->spec.policy = q->table_path      ? FREEZE_TABLE
                     : q->evidence_path ? FREEZE_SAFE
                     : q->norms_path    ? FREEZE_GRADIENT_NORM
                                        : FREEZE_CLOSED_FORM;
    if (q->policy)
        rc = freeze_policy_parse(q->policy, &q->spec.policy, err);
    const bool safe = q->spec.policy == FREEZE_SAFE;
    q->spec.max_loss = q->max_loss;
    if (safe && !q->alpha_seen)
        q->alpha = q->spec.alpha = 0.5;
    THEN(check_files(q, err));
    if (rc == OK && q->table_path)
        rc = read_table(q, err);
    if (rc == OK && safe)
        rc = read_evidence(q, err);
    if (rc == OK && q->norms_path)
        rc = read_norms(q, err);
    if (rc == OK && q->norms_path && q->norm_epochs < q->num_epochs - 1)
        rc = err_set(err, ERR_INPUT, "%s: %s of gradient norms, %lld epochs need %lld",
                     q->norms_path, COUNT_TEXT(q->norm_epochs, "epoch"), (long long)q->num_epochs,
                     (long long)q->num_epochs - 1);
    return rc;
}

static enum status answer(const struct command *command, const struct request *q, bool as_json,
                          struct err *err)
{
    struct freeze freeze = {0};
    struct freeze_replay replay = {.recorded = &q->evidence};
    struct json *json = NULL, *frozen_list = NULL, *reasons = NULL;
    enum status rc = freeze_init(&freeze, &q->spec, (int)q->num_layers, err);
    if (rc != OK)
        return rc;
    freeze.passes = INFINITY; /* the evidence has been paid for */
    if (as_json) {
        json = command_json(command);
        json_add_int(json, "layers", q->num_layers);
        json_add_int(json, "epochs", q->num_epochs);
        json_add_string(json, "policy", freeze_policy_name(q->spec.policy));
        json_add_double(json, "alpha", q->alpha);
        json_add_int(json, "min_active", q->min_active);
        json_add_int(json, "warmup", q->warmup);
        frozen_list = json_add_array(json, "frozen");
        reasons = json_add_array(json, "reasons");
    } else {
        printf("%s, %s\n\n%5s  %6s  %s\n", freeze_policy_name(q->spec.policy),
               COUNT_TEXT(q->num_layers, "layer"), "epoch", "frozen", "why");
    }
    for (int e = 0; e < q->num_epochs && rc == OK; e++) {
        const struct turn_facts facts = {q->norms, q->norm_epochs, &replay.history};
        char reason[160];
        int frozen;
        if (e > 0 && q->spec.policy == FREEZE_SAFE)
            rc = freeze_replay_turn(&replay, &freeze, e - 1, NULL, err);
        THEN(turn_decide(&freeze, &facts, e, &frozen, reason, err));
        if (rc != OK)
            break;
        if (as_json) {
            json_add_int(frozen_list, NULL, frozen);
            json_add_string(reasons, NULL, reason);
        } else {
            printf("%5d  %6d  %s\n", e, frozen, reason);
        }
    }
    freeze_clear(&freeze);
    freeze_replay_clear(&replay);
    if (!as_json)
        return rc;
    if (rc == OK)
        return command_answer(json, err);
    json_free(json);
    return rc;
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    bool as_json = false;
    struct request q = {.num_epochs = 10, .alpha = 1.0 / 3, .max_loss = 1};
    const struct option options[] = {
        OPTION("layers", INT, &q.num_layers, "L", "transformer layers", .min = 1,
               .max = MODEL_LAYERS_MAX, .seen = &q.layers_seen),
        OPTION("alpha", RATIO, &q.alpha, "A",
               "share of the active layers that one epoch may freeze, 0 < A < 1 (default 1/3; "
               "safe: 1/2)",
               .seen = &q.alpha_seen),
        OPTION("epochs", INT, &q.num_epochs, "N",
               "epochs to decide (default 10; with --evidence those recorded)", .min = 1,
               .max = EPOCHS_MAX, .seen = &q.epochs_seen),
        OPTION("policy", STRING, &q.policy, "POLICY",
               "%s (default: table with --table, safe with --evidence, gradient-norm with --norms, "
               "else "
               "closed-form)",
               .names = freeze_policy_names),
        OPTION("norms", STRING, &q.norms_path, "FILE",
               "recorded gradient norms: a JSON array of epochs, each an array of L"),
        OPTION("evidence", STRING, &q.evidence_path, "FILE",
               "evidence.json of a run, for policy safe; each turn counts as an epoch"),
        OPTION("max-loss", RATIO, &q.max_loss, "X",
               "what freezing may cost under safe: points of accuracy, or per cent of the loss "
               "(default 1)"),
        OPTION("table", STRING, &q.table_path, "FILE",
               "a JSON array of frozen layers per epoch, or mild, mild-early, by_epoch, linear"),
        OPTION("min-active", INT, &q.min_active, "N", "layers that stay active (default 0)",
               .max = MODEL_LAYERS_MAX),
        OPTION("warmup", INT, &q.warmup, "N",
               "epochs at the start in which nothing freezes (default 0)", .max = EPOCHS_MAX),
        OPTION_JSON(&as_json),
    };
    struct command_line line = COMMAND_LINE(options, 0);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    if (!q.layers_seen && !q.evidence_path) {
        rc = err_set(err, ERR_INPUT, "freeze: --layers is missing");
        err_hint(err, "for example: elapse freeze --layers 12 --alpha 1/3 --epochs 10");
        return rc;
    }
    if (!(q.max_loss >= 0 && isfinite(q.max_loss)))
        return err_set(err, ERR_INPUT, "--max-loss must be at least 0, got %g", q.max_loss);
    if (!(q.alpha > 0 && q.alpha < 1))
        return err_set(err, ERR_INPUT, "--alpha must lie between 0 and 1, got %g", q.alpha);
    rc = resolve(&q, err);
    THEN(answer(command, &q, as_json, err));
    freeze_spec_clear(&q.spec);
    free(q.norms);
    freeze_history_clear(&q.evidence);
    return rc;
}

const struct command command_freeze = {
    .name = "freeze",
    .args = "--layers L --alpha A --epochs N [options]",
    .summary = "how many layers a freeze policy has frozen in each epoch",
    .takes = "",
    .run = run};
