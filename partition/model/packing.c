/* Rows of documents. model_set_packing() at the end first. */
#include "partition/model/packing.h"

#include <math.h>

#include "partition/base/units.h"

const char *const fill_kind_names[] = {"packed", "context", "longest", NULL};

/* --- documents of a row ----------------------------------------------------------------------- */

/* Cells of a row in which next_fit() counts tokens. A length between two cells is both, by shares
 * that keep its mean. */
enum { CELLS = 256, TURNS = 64 };

/* Rows begin with the document that did not fit the row before, so they are a Markov chain over the
 * length of their first document. Behind it documents of the data set follow: visits[x] is how often
 * a sum of them passes x, and known[x] the sum of visits up to x. A row whose first document has
 * length a holds known[CELLS - a] documents, and a document of length j is the one that does not fit
 * with probability share[j] (known[CELLS - a] - known[CELLS - a - j]). */
static double next_fit(const double *lengths, const double *weights, int num)
{
    double share[CELLS + 1] = {0}, visits[CELLS + 1] = {0}, known[CELLS + 1] = {0},
                         first[CELLS + 1], all = 0;
    for (int i = 0; i < num; i++) {
        const double at = fmin(lengths[i], 1) * CELLS;
        const int low = (int)fmin(at, CELLS - 1);
        share[low] += weights[i] * (low + 1 - at);
        share[low + 1] += weights[i] * (at - low);
        all += weights[i];
    }
    for (int x = 0; x <= CELLS; x++) {
        share[x] /= all;
        first[x] = share[x];
    }
    for (int x = 0; x <= CELLS; x++) {
        double sum = x == 0 ? 1 : 0;
        for (int j = 1; j <= x; j++)
            sum += share[j] * visits[x - j];
        visits[x] = sum / (1 - share[0]);
        known[x] = visits[x] + (x > 0 ? known[x - 1] : 0);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        double next[CELLS + 1] = {0};
        for (int a = 0; a <= CELLS; a++) {
            const int room = CELLS - a;
            for (int j = 0; first[a] > 1e-12 && j <= CELLS; j++)
                next[j] += first[a] * share[j] * (known[room] - (room >= j ? known[room - j] : 0));
        }
        for (int x = 0; x <= CELLS; x++) /* the mean of two turns ends a chain of period 2 too */
            first[x] = (first[x] + next[x]) / 2;
    }
    double documents = 0;
    for (int a = 0; a <= CELLS; a++)
        documents += first[a] * known[CELLS - a];
    return documents;
}

static double sum_of(const double *values, int num)
{
    double sum = 0;
    for (int i = 0; i < num; i++)
        sum += values[i];
    return sum;
}

/* The fewest rows that any packer can do with, by the dual feasible functions of Fekete and Schepers
 * ("New classes of fast lower bounds for bin packing problems", 2001): floor((k + 1) x) / k in place
 * of a length x. First fit by falling lengths comes within 2 % of it (test_packing.c). */
static double best_fit(const double *lengths, const double *weights, int num)
{
    enum { MOST = 32 };
    double rows = 0;
    for (int k = 0; k <= MOST; k++) {
        double sum = 0;
        for (int i = 0; i < num; i++) {
            const double x = fmin(lengths[i], 1), times = x * (k + 1);
            sum += weights[i] * (k == 0 || times == floor(times) ? x : floor(times) / k);
        }
        rows = fmax(rows, sum);
    }
    return sum_of(weights, num) / rows;
}

/* Documents per row that are packed in their order, a new row where one does not fit (next fit), as
 * elapse-exec packs; with `ahead` as packers do that look for the best row among all. Lengths are
 * shares of a row, each with a weight. */
static double documents_per_row(const double *lengths, const double *weights, int num, bool ahead)
{
    return ahead ? best_fit(lengths, weights, num) : next_fit(lengths, weights, num);
}

/* --- pairs ------------------------------------------------------------------------------------ */

static double pairs_of(double tokens, int64_t window)
{
    const double w = (double)window;
    return w > 0 && tokens > w ? tokens * (2 * w - 1) - w * (w - 1) : tokens * tokens;
}

double model_row_documents(const struct model *model)
{
    return model->packing.documents > 0 ? model->packing.documents : 1;
}

double model_row_tokens(const struct model *model)
{
    return model->packing.documents > 0 ? model->packing.tokens
                                        : (double)model_sample_tokens(model);
}

double model_document_pairs(const struct model *model, int layer)
{
    const int ways = model->context > 1 ? model->context : 1;
    const int64_t window = model_window(model, layer);
    double sum = 0;
    if (model->packing.documents == 0)
        return (double)model_attention_pairs(model, layer);
    for (int i = 0; i < PACKING_LENGTHS; i++) {
        const double tokens = model->packing.lengths[i];
        sum += pairs_of(tokens, window) / tokens;
    }
    return sum / PACKING_LENGTHS * model->packing.tokens / ways;
}

int64_t model_core_tokens(const struct model *model)
{
    if (!model->packing.apart)
        return model->seq;
    const double length = sum_of(model->packing.lengths, PACKING_LENGTHS) / PACKING_LENGTHS *
                          model->seq / (double)model_sample_tokens(model);
    return (int64_t)fmax(1, round(length));
}

/* --- of a job --------------------------------------------------------------------------------- */

enum { POINTS = 1024 };

/* Points of a lognormal distribution, between -5 and 5 deviations of the logarithm, in tokens. */
static int lay_points(const struct packing_ask *ask, double most, double lengths[POINTS],
                      double weights[POINTS])
{
    const double ratio = ask->deviation / ask->mean, spread = sqrt(log1p(ratio * ratio));
    const double middle = log(ask->mean) - spread * spread / 2;
    const int num = ask->deviation > 0 ? POINTS : 1;
    for (int i = 0; i < num; i++) {
        const double z = num > 1 ? 10 * (i + 0.5) / num - 5 : 0;
        lengths[i] = fmin(fmax(num > 1 ? exp(middle + spread * z) : ask->mean, 1), most);
        weights[i] = exp(-z * z / 2);
    }
    return num;
}

static double mean_of(const double *lengths, const double *weights, int num)
{
    double sum = 0;
    for (int i = 0; i < num; i++)
        sum += weights[i] * lengths[i];
    return sum / sum_of(weights, num);
}

/* The mean of the longest of n documents: the sum of lengths times the rise of F^n. */
static double longest_of(const double *lengths, const double *weights, int num, double n)
{
    const double all = sum_of(weights, num);
    double below = 0, before = 0, sum = 0;
    for (int i = 0; i < num; i++) {
        below += weights[i];
        const double power = pow(below / all, n);
        sum += lengths[i] * (power - before);
        before = power;
    }
    return sum;
}

/* Lengths ascend. Each of PACKING_LENGTHS equal parts of the tokens gets the mean length that its
 * tokens lie in, so the sum of squares of all documents is kept. */
static void keep_lengths(struct model *model, const double *lengths, const double *weights, int num)
{
    const double each = mean_of(lengths, weights, num) / PACKING_LENGTHS;
    const double all = sum_of(weights, num);
    double filled = 0;
    int part = 0;
    for (int p = 0; p < PACKING_LENGTHS; p++)
        model->packing.lengths[p] = 0;
    for (int i = 0; i < num; i++) {
        double tokens = weights[i] / all * lengths[i];
        while (tokens > 0 && part < PACKING_LENGTHS) {
            const bool last = part == PACKING_LENGTHS - 1;
            const double now = last ? tokens : fmin(tokens, each - filled);
            model->packing.lengths[part] += now / each * lengths[i];
            tokens -= now;
            filled += now;
            if (!last && filled >= each * (1 - 1e-12)) {
                filled = 0;
                part++;
            }
        }
    }
}

/* Shorter samples: all sizes are of tokens, but for the score matrices. fwd_flops lacks the core. */
static void shorten(struct model *model, int seq)
{
    const double share = (double)seq / model->seq;
    for (int i = 0; i < model->num_items; i++) {
        struct item *item = &model->items[i];
        const double scores = (double)model_core_stash_bytes(model, i);
        item->fwd_flops = (int64_t)((double)item->fwd_flops * share);
        item->stash_bytes =
            (int64_t)(((double)item->stash_bytes - scores) * share + scores * share * share);
        item->act_bytes = (int64_t)((double)item->act_bytes * share);
        item->work_bytes = (int64_t)((double)item->work_bytes * share);
    }
    model->seq = seq;
}

static enum status check_ask(const struct model *model, const struct packing_ask *ask,
                             struct err *err)
{
    if (model->task != TASK_CAUSAL_LM || model->heads == 0 || model->num_pieces > 0 ||
        model->state.kind != MIXER_NONE)
        return err_set(err, ERR_INFEASIBLE,
                       "data.length: model '%s' is not a causal language model, whose samples are "
                       "documents",
                       model->name);
    if (!(ask->mean >= 1 && ask->mean <= model->seq))
        return err_set(err, ERR_INPUT,
                       "data.length must be 1..%d, the tokens of a row of model '%s', got %g",
                       model->seq, model->name, ask->mean);
    if (!(ask->deviation >= 0 && ask->deviation <= 100 * ask->mean))
        return err_set(err, ERR_INPUT,
                       "data.length_deviation must be 0..100 times data.length, got %g",
                       ask->deviation);
    return OK;
}

enum status model_set_packing(struct model *model, const struct packing_ask *ask, struct err *err)
{
    const struct framework *framework = framework_of(ask->framework);
    double lengths[POINTS], weights[POINTS], shares[POINTS];
    if (ask->mean == 0)
        return OK;
    const enum status rc = check_ask(model, ask, err);
    if (rc != OK)
        return rc;
    const int num = lay_points(ask, model->seq, lengths, weights);
    const double mean = mean_of(lengths, weights, num);
    for (int i = 0; i < model->num_items; i++)
        model->items[i].fwd_flops -= model_core_flops(model, i);
    if (ask->rows == FILL_LONGEST)
        shorten(model, (int)ceil(longest_of(lengths, weights, num, (double)ask->batch) - 1e-6));
    for (int i = 0; i < num; i++)
        shares[i] = lengths[i] / model->seq;
    keep_lengths(model, lengths, weights, num);
    model->packing.documents =
        ask->rows == FILL_PACKED
            ? documents_per_row(shares, weights, num, framework && framework->packs_ahead)
            : 1;
    model->packing.tokens = fmin(model->packing.documents * mean, model->seq);
    model->packing.apart = ask->rows == FILL_PACKED && !attention_is_unfused(ask->attention) &&
                           !(framework && framework->masks_rows);
    for (int i = 0; i < model->num_items; i++)
        model->items[i].fwd_flops += model_core_flops(model, i);
    return OK;
}
