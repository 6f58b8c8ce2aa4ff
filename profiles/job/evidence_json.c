#include "profiles/job/evidence_json.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { EVIDENCE_SCHEMA = 1 };

static void add_layers(struct json *object, const char *key, const double *values, int num_layers)
{
    if (!values)
        return;
    struct json *list = json_add_array(object, key);
    for (int l = 0; l < num_layers; l++)
        json_add_double(list, NULL, values[l]);
}

static void add_verdict(struct json *object, const struct freeze_verdict *verdict)
{
    json_add_int(object, "frozen", verdict->frozen);
    json_add_double(object, "cost", verdict->cost);
    json_add_double(object, "cost_se", verdict->cost_se);
    json_add_double(object, "left", verdict->left);
    json_add_string(object, "reason", verdict->reason);
}

void evidence_to_json(struct json *root, const struct model *model,
                      const struct freeze_history *history)
{
    json_add_int(root, "schema", EVIDENCE_SCHEMA);
    struct json *of = json_add_object(root, "model");
    json_add_string(of, "name", model->name);
    json_add_int(of, "layers", model->num_layers);
    json_add_int(of, "items", model->num_items);
    json_add_int(of, "params", model_total_params(model));
    struct json *turns = json_add_array(root, "turns");
    for (int64_t i = 0; i < history->num_rows; i++) {
        const struct freeze_evidence *row = &history->rows[i];
        struct json *one = json_add_object(turns, NULL), *list;
        json_add_int(one, "turn", row->turn);
        json_add_int(one, "step", row->step);
        json_add_int(one, "frozen", row->num_frozen);
        json_add_double(one, "rate_window", row->rate_window);
        json_add_double(one, "rate_left", row->rate_left);
        json_add_double(one, "steps_window", row->steps_window);
        json_add_double(one, "steps_left", row->steps_left);
        json_add_double(one, "loss", row->loss);
        json_add_double(one, "loss_before", row->loss_before);
        json_add_double(one, "fall_se", row->fall_se);
        json_add_double(one, "accuracy", row->accuracy);
        json_add_int(one, "num_probe", row->num_probe);
        json_add_double(one, "passes", row->passes);
        list = json_add_array(one, "candidates");
        for (int c = 0; c < row->num_candidates; c++) {
            struct json *candidate = json_add_object(list, NULL);
            json_add_int(candidate, "frozen", row->candidates[c].frozen);
            json_add_double(candidate, "share", row->candidates[c].share);
            json_add_double(candidate, "share_se", row->candidates[c].share_se);
        }
        add_layers(one, "plasticity", row->plasticity, model->num_layers);
        add_layers(one, "norms", row->norms, model->num_layers);
        add_layers(one, "sample_ns", row->sample_ns, model->num_layers + 1);
        if (row->verdict.made)
            add_verdict(json_add_object(one, "decision"), &row->verdict);
    }
}

/* A whole number of a member, from 0 to max. */
static enum status read_count(const struct json *object, const char *where, const char *key,
                              int64_t max, int64_t *value, struct err *err)
{
    const struct json *member = json_get(object, key);
    if (!member || !json_int64(member, value) || *value < 0 || *value > max)
        return err_set(err, ERR_INPUT, "%s: %s must be 0..%lld", where, key, (long long)max);
    return OK;
}

static enum status read_real(const struct json *object, const char *where, const char *key,
                             double least, double *value, struct err *err)
{
    const struct json *member = json_get(object, key);
    *value = member ? json_number(member) : NAN;
    if (!isfinite(*value) || *value < least)
        return err_set(err, ERR_INPUT, "%s: %s must be a number%s", where, key,
                       least == 0 ? " at least 0" : "");
    return OK;
}

static enum status check_model(const struct json *root, const char *where,
                               const struct model *model, struct err *err)
{
    const struct json *of = json_get(root, "model");
    const struct {
        const char *key;
        int64_t want;
    } dims[] = {
        {"layers", model->num_layers        },
        {"items",  model->num_items         },
        {"params", model_total_params(model)},
    };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        int64_t got;
        enum status rc = read_count(of, where, dims[i].key, INT64_MAX, &got, err);
        if (rc != OK)
            return rc;
        if (got != dims[i].want)
            return err_set(err, ERR_INPUT,
                           "%s is of another model: %s is %lld, the job's model has %lld", where,
                           dims[i].key, (long long)got, (long long)dims[i].want);
    }
    return OK;
}

enum status evidence_layers(const struct json *root, const char *where, int *num_layers,
                            struct err *err)
{
    int64_t layers;
    enum status rc =
        read_count(json_get(root, "model"), where, "layers", MODEL_LAYERS_MAX, &layers, err);
    if (rc == OK)
        *num_layers = (int)layers;
    return rc;
}

static enum status read_layers(const struct json *object, const char *where, const char *key,
                               int num, double **values, struct err *err)
{
    const struct json *list = json_get(object, key);
    if (!list)
        return OK;
    if (json_type(list) != JSON_ARRAY || json_count(list) != num)
        return err_set(err, ERR_INPUT, "%s: %s must hold %d numbers", where, key, num);
    *values = calloc((size_t)num + 1, sizeof **values);
    if (!*values)
        return err_nomem(err);
    for (int l = 0; l < num; l++) {
        (*values)[l] = json_number(json_at(list, l));
        if (!((*values)[l] >= 0 && isfinite((*values)[l])))
            return err_set(err, ERR_INPUT, "%s: %s[%d] must be at least 0", where, key, l);
    }
    return OK;
}

static enum status read_candidates(const struct json *list, const char *where, int num_layers,
                                   struct freeze_evidence *row, struct err *err)
{
    enum status rc = OK;
    if (!list || json_type(list) != JSON_ARRAY)
        return err_set(err, ERR_INPUT, "%s: candidates must be an array", where);
    for (int i = 0; rc == OK && i < json_count(list); i++) {
        const struct json *one = json_at(list, i);
        struct freeze_candidate candidate = {0};
        int64_t frozen = 0;
        rc = read_count(one, where, "frozen", num_layers, &frozen, err);
        candidate.frozen = (int)frozen;
        THEN(read_real(one, where, "share", -INFINITY, &candidate.share, err));
        THEN(read_real(one, where, "share_se", 0, &candidate.share_se, err));
        THEN(freeze_evidence_add(row, candidate, err));
    }
    return rc;
}

/* A decision is stored as F alone: the policy derives the rest from the rows. */
static enum status read_verdict(const struct json *one, const char *where, int num_layers,
                                struct freeze_evidence *row, struct err *err)
{
    int64_t frozen;
    if (!one)
        return OK;
    enum status rc = read_count(one, where, "frozen", num_layers, &frozen, err);
    if (rc == OK)
        row->verdict = (struct freeze_verdict){.made = true, .frozen = (int)frozen};
    return rc;
}

/* The steps of a row; files of older versions lack them. */
static enum status read_steps(const struct json *one, const char *where, int64_t steps_before,
                              struct freeze_evidence *row, struct err *err)
{
    const double window = (double)(row->step - steps_before);
    row->steps_window = window > 0 ? window : 0;
    row->steps_left =
        row->rate_window > 0 ? row->steps_window * row->rate_left / row->rate_window : 0;
    if (!json_get(one, "steps_window"))
        return OK;
    enum status rc = read_real(one, where, "steps_window", 0, &row->steps_window, err);
    return rc == OK ? read_real(one, where, "steps_left", 0, &row->steps_left, err) : rc;
}

static enum status read_numbers(const struct json *one, const char *where,
                                struct freeze_evidence *row, struct err *err)
{
    const struct {
        const char *key;
        double least, *value;
    } numbers[] = {
        {"rate_window", 0,         &row->rate_window},
        {"rate_left",   0,         &row->rate_left  },
        {"loss",        -INFINITY, &row->loss       },
        {"loss_before", -INFINITY, &row->loss_before},
        {"fall_se",     0,         &row->fall_se    },
    };
    const struct json *accuracy = json_get(one, "accuracy");
    enum status rc = OK;
    for (size_t i = 0; rc == OK && i < sizeof numbers / sizeof *numbers; i++)
        rc = read_real(one, where, numbers[i].key, numbers[i].least, numbers[i].value, err);
    row->accuracy = accuracy && json_type(accuracy) == JSON_NUMBER ? json_number(accuracy) : NAN;
    return rc;
}

static enum status read_row(const struct json *one, const char *where, int num_layers,
                            int64_t steps_before, struct freeze_evidence *row, struct err *err)
{
    int64_t frozen = 0;
    enum status rc = read_count(one, where, "turn", INT_MAX - 1, &row->turn, err);
    THEN(read_count(one, where, "step", INT64_MAX, &row->step, err));
    THEN(read_count(one, where, "frozen", num_layers, &frozen, err));
    THEN(read_count(one, where, "num_probe", INT64_MAX, &row->num_probe, err));
    if (rc == OK && json_get(one, "passes"))
        rc = read_real(one, where, "passes", 0, &row->passes, err);
    row->num_frozen = (int)frozen;
    THEN(read_numbers(one, where, row, err));
    THEN(read_steps(one, where, steps_before, row, err));
    THEN(read_candidates(json_get(one, "candidates"), where, num_layers, row, err));
    THEN(read_layers(one, where, "plasticity", num_layers, &row->plasticity, err));
    THEN(read_layers(one, where, "norms", num_layers, &row->norms, err));
    THEN(read_layers(one, where, "sample_ns", num_layers + 1, &row->sample_ns, err));
    THEN(read_verdict(json_get(one, "decision"), where, num_layers, row, err));
    return rc;
}

enum status evidence_from_json(const struct json *root, const char *where,
                               const struct model *model, struct freeze_history *history,
                               struct err *err)
{
    const struct json *turns = json_get(root, "turns");
    struct freeze_history got = {0};
    int64_t schema = 0, steps = 0, turn = -1;
    int num_layers = 0;
    enum status rc = read_count(root, where, "schema", EVIDENCE_SCHEMA, &schema, err);
    THEN(evidence_layers(root, where, &num_layers, err));
    if (rc == OK && model)
        rc = check_model(root, where, model, err);
    if (rc == OK && (!turns || json_type(turns) != JSON_ARRAY))
        rc = err_set(err, ERR_INPUT, "%s: turns must be an array", where);
    for (const struct json *one = json_first(turns); rc == OK && one; one = json_next(one)) {
        struct freeze_evidence row = {0};
        rc = read_row(one, where, num_layers, steps, &row, err);
        if (rc == OK && row.turn <= turn)
            rc = err_set(err, ERR_INPUT, "%s: turn %lld follows turn %lld", where,
                         (long long)row.turn, (long long)turn);
        steps = row.step;
        turn = row.turn;
        THEN(freeze_history_add(&got, &row, err));
        freeze_evidence_clear(&row);
    }
    if (rc == OK)
        *history = got;
    else
        freeze_history_clear(&got);
    return rc;
}
