/* Exact min-max cuts with communication, skip tensors, a frozen prefix and memory limits.
 *
 * A stage's cost is not monotone in its ends, because another boundary may send fewer bytes. A
 * greedy cut therefore only bounds the answer. cut_solve() works in four steps:
 *   1. Relax the problem. A relaxed stage sends the fewest bytes of any boundary, and its memory
 *      counts only the parts that grow with the stage. The relaxed cost is monotone, so a greedy
 *      cut is exact for it, and bisection gives a lower bound L of the answer.
 *   2. Take a bound U >= L. For each stage k find the band [low, high] of first items that the
 *      relaxed stages before and behind k allow within U.
 *   3. Run the dynamic program D(k, a) = min over b of max(cost(k, a, b), D(k+1, b)) over the
 *      bands, from the last stage to the first. A scan over b stops when the relaxed cost of stage
 *      k exceeds the best value so far.
 *   4. If D(0, 0) <= U it is the optimum. Otherwise raise U and repeat steps 2 and 3.
 * D is exact wherever it is <= U. No answer is below L, so values below L count as L and a scan may
 * stop at L.
 *
 * Read struct cut_problem in cut.h first, then cut_solve() at the end of this file. */
#include "partition/plan/cut.h"

#include <stdlib.h>

#include "partition/base/units.h"

#define CLASSES_MAX 65536
#define STATES_MAX (INT64_C(1) << 27) /* 1 GiB of table */
#define FAR INT64_MAX                 /* no cut within the bound */

typedef __int128 wide;

static bool active(const struct cut_problem *p, int item)
{
    return item >= p->num_frozen;
}

static int class_of(const struct cut_problem *p, int stage)
{
    return p->class_of_stage ? p->class_of_stage[stage] : 0;
}

/* The share of one item in its stage's compute, as defined in cut.h. */
static wide compute_of(const struct cut_problem *p, int kind, int item)
{
    const struct cut_time *t = &p->times[(size_t)kind * (size_t)p->num_items + (size_t)item];
    if (!active(p, item))
        return (wide)p->num_microbatches * t->fwd_nograd_ns;
    wide one = (wide)t->fwd_ns + (p->recompute ? t->fwd_nograd_ns : 0) + t->bwd_weight_ns;
    one += p->num_frozen == 0 || item > p->num_frozen ? t->bwd_input_ns : t->bwd_rest_ns;
    return one * p->num_microbatches + t->update_ns;
}

/* latency + bytes / bandwidth, rounded up: the integer that cluster_transfer_ns() returns. */
static int64_t send_ns(const struct cut_link *link, int64_t bytes)
{
    uint64_t rate = (uint64_t)(link->bytes_per_s + 0.5);
    if (bytes <= INT64_MAX / 1000000000)
        return link->latency_ns + (int64_t)(((uint64_t)bytes * 1000000000u + rate - 1) / rate);
    return link->latency_ns + (int64_t)(((unsigned __int128)bytes * 1000000000u + rate - 1) / rate);
}

/* Bytes of the skip tensors that cross both boundaries a and b: from an item below a to item b or
 * above. */
struct spans {
    int64_t bytes;
    int64_t grad_bytes; /* of edges from an active item, which alone carry a gradient */
};

struct solver {
    const struct cut_problem *p;
    int n, num_stages;
    int64_t *compute;       /* [num_classes][n + 1], prefix sums, ns per step */
    int64_t *fixed;         /* [n + 1], prefix sums of weight and train bytes */
    int64_t *stash;         /* [n + 1], prefix sums of bytes per live micro-batch */
    int64_t *tied;          /* [n + 1], prefix sums of tied_bytes */
    int64_t *least_send;    /* [num_stages], ns per step: lower bound of what stage k sends */
    struct spans *cross;    /* [n + 1]: bytes of skip edges that cross each boundary */
    struct spans *span;     /* [n + 1]: bytes that cross the current boundary a and boundary b */
    struct spans *entering; /* [n]: bytes of edges from below the current a, by destination */
    int *order;             /* edges sorted by `from`; item i has first_edge[i]..[i + 1] of them */
    int *first_edge;        /* [n + 2] */
    int *low, *high;        /* [num_stages + 1], bands of first items (step 2) */
    int64_t **rows;         /* [num_stages + 1], rows[k][a - low[k]] = D(k, a) */
    int64_t *states;
};

static void solver_clear(struct solver *s)
{
    free(s->compute);
    free(s->fixed);
    free(s->stash);
    free(s->tied);
    free(s->least_send);
    free(s->cross);
    free(s->span);
    free(s->entering);
    free(s->order);
    free(s->first_edge);
    free(s->low);
    free(s->high);
    free(s->rows);
    free(s->states);
    *s = (struct solver){0};
}

/* Bytes of the stage's inputs that recompute keeps, one per live micro-batch. */
static int64_t kept_inputs(const struct cut_problem *p, int stage, int a, int b)
{
    int first = a > p->num_frozen ? a : p->num_frozen;
    if (!p->items || !p->recompute || first >= b || first == 0)
        return 0;
    return (p->live ? p->live[stage] : 1) * p->items[first - 1].out_bytes;
}

/* The part of the stage's memory that grows when either end moves outwards. */
static int64_t memory_growing(const struct solver *s, int stage, int a, int b)
{
    int64_t live = s->p->recompute || !s->p->live ? 1 : s->p->live[stage];
    return s->fixed[b] - s->fixed[a] + live * (s->stash[b] - s->stash[a]);
}

/* The stage's memory, as defined in cut.h. */
static int64_t memory_of(const struct solver *s, int stage, int a, int b)
{
    return memory_growing(s, stage, a, b) + kept_inputs(s->p, stage, a, b) +
           (a > 0 ? s->tied[b] - s->tied[a] : 0);
}

static int64_t compute_ns(const struct solver *s, int stage, int a, int b)
{
    const int64_t *prefix = s->compute + (size_t)class_of(s->p, stage) * (size_t)(s->n + 1);
    return prefix[b] - prefix[a];
}

/* Time of all sends of stage k = [a, b) in a step. span: the skip bytes that cross both a and b. */
static int64_t sends_ns(const struct solver *s, int k, int a, int b, struct spans span)
{
    const struct cut_problem *p = s->p;
    int64_t ns = 0;
    if (!p->links)
        return 0;
    if (k < s->num_stages - 1)
        ns += send_ns(&p->links[k],
                      (p->items ? p->items[b - 1].out_bytes : 0) + s->cross[b].bytes - span.bytes);
    if (k > 0 && (p->num_frozen == 0 || a > p->num_frozen))
        ns += send_ns(&p->links[k - 1], (p->items ? p->items[a - 1].out_bytes : 0) +
                                            s->cross[a].grad_bytes - span.grad_bytes);
    return ns * p->num_microbatches;
}

static int64_t join(const struct cut_problem *p, int64_t compute, int64_t sends)
{
    if (p->overlap)
        return compute > sends ? compute : sends;
    return compute + sends;
}

/* The relaxed cost (step 1): never above the true cost, and monotone in a and b. */
static int64_t relaxed_ns(const struct solver *s, int k, int a, int b)
{
    return join(s->p, compute_ns(s, k, a, b), s->least_send[k]);
}

static bool relaxed_fits(const struct solver *s, int k, int a, int b, int64_t bound)
{
    return relaxed_ns(s, k, a, b) <= bound &&
           (!s->p->mem_limit_bytes || memory_growing(s, k, a, b) <= s->p->mem_limit_bytes[k]);
}

/* Farthest end, at most `most`, of a relaxed stage k that starts at a. Returns a if item a does not
 * fit; the stage must then start earlier. */
static int farthest_end(const struct solver *s, int k, int a, int most, int64_t bound)
{
    int low = a, high = most;
    if (a >= most || !relaxed_fits(s, k, a, a + 1, bound))
        return a;
    for (low = a + 1; low < high;) {
        int middle = low + (high - low + 1) / 2;
        if (relaxed_fits(s, k, a, middle, bound))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* First start, at least `least`, of a relaxed stage k that ends at b. Returns b if item b - 1 does
 * not fit; the stage must then end later. */
static int nearest_start(const struct solver *s, int k, int b, int least, int64_t bound)
{
    int low = least, high = b - 1;
    if (b <= least || !relaxed_fits(s, k, b - 1, b, bound))
        return b;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (relaxed_fits(s, k, middle, b, bound))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Fill high[k], the farthest first item of stage k that the relaxed stages before it can reach if
 * each stage behind still gets an item. No cut within `bound` starts stage k beyond high[k].
 * Returns the number of stages that could be filled: num_stages if they reach the last item. */
static int fill_high(struct solver *s, int64_t bound)
{
    int k, last = s->num_stages;
    s->high[0] = 0;
    for (k = 0; k < last; k++) {
        s->high[k + 1] = farthest_end(s, k, s->high[k], s->n - (last - 1 - k), bound);
        if (s->high[k + 1] <= k) /* stage k is empty in every cut within the bound */
            return k;
    }
    return s->high[last] == s->n ? last : last - 1;
}

/* Fill low[k], the earliest first item of stage k, from the last stage back. False if the bands
 * show that no cut is within `bound`. */
static bool fill_low(struct solver *s, int64_t bound)
{
    int last = s->num_stages;
    s->low[last] = s->n;
    for (int k = last - 1; k >= 0; k--) {
        s->low[k] = nearest_start(s, k, s->low[k + 1], k, bound);
        if (s->low[k] > s->n - (last - k) || s->low[k] > s->high[k])
            return false;
    }
    return s->low[0] == 0;
}

/* Sort the edges by `from`, and sum their bytes over each boundary. */
static enum status prepare_skips(struct solver *s, struct err *err)
{
    const struct cut_problem *p = s->p;
    size_t n = (size_t)s->n;
    s->cross = calloc(n + 1, sizeof *s->cross);
    s->span = calloc(n + 1, sizeof *s->span);
    s->entering = calloc(n, sizeof *s->entering);
    s->first_edge = calloc(n + 2, sizeof *s->first_edge);
    s->order = malloc(((size_t)p->num_skips + 1) * sizeof *s->order);
    if (!s->cross || !s->span || !s->entering || !s->first_edge || !s->order)
        return err_nomem(err);
    for (int e = 0; e < p->num_skips; e++)
        s->first_edge[p->skips[e].from + 2]++;
    for (size_t i = 2; i < n + 2; i++)
        s->first_edge[i] += s->first_edge[i - 1];
    for (int e = 0; e < p->num_skips; e++) { /* counting sort; first_edge shifts down by one */
        const struct cut_skip *skip = &p->skips[e];
        bool grad = active(p, skip->from);
        s->order[s->first_edge[skip->from + 1]++] = e;
        s->cross[skip->from + 1].bytes += skip->bytes; /* over boundaries from+1 .. to */
        s->cross[skip->from + 1].grad_bytes += grad ? skip->bytes : 0;
        if (skip->to < s->n) {
            s->cross[skip->to + 1].bytes -= skip->bytes;
            s->cross[skip->to + 1].grad_bytes -= grad ? skip->bytes : 0;
        }
    }
    for (size_t i = 1; i <= n; i++) {
        s->cross[i].bytes += s->cross[i - 1].bytes;
        s->cross[i].grad_bytes += s->cross[i - 1].grad_bytes;
    }
    return OK;
}

/* Lower bound of what stage k sends: its links carry at least the lightest boundary. */
static void fill_least_sends(struct solver *s)
{
    const struct cut_problem *p = s->p;
    int64_t lightest = s->n > 1 && p->items ? FAR : 0;
    for (int b = 1; b < s->n && p->items; b++)
        if (p->items[b - 1].out_bytes < lightest)
            lightest = p->items[b - 1].out_bytes;
    for (int k = 0; k < s->num_stages && p->links; k++) {
        int64_t ns = k < s->num_stages - 1 ? send_ns(&p->links[k], lightest) : 0;
        if (k > 0 && p->num_frozen == 0)
            ns += send_ns(&p->links[k - 1], lightest);
        s->least_send[k] = ns * p->num_microbatches;
    }
}

static enum status refuse_negative(const char *what, int item, int64_t value, struct err *err)
{
    return err_set(err, ERR_INPUT, "item %d: %s must not be negative, got %lld", item, what,
                   (long long)value);
}

static enum status check_items(const struct cut_problem *p, struct err *err)
{
    wide act = 0, memory = 0, live = 1;
    for (int k = 0; k < p->num_stages && p->live; k++) {
        if (p->live[k] < 0)
            return err_set(err, ERR_INPUT, "stage %d: live micro-batches must not be negative", k);
        if (p->live[k] > live)
            live = p->live[k];
    }
    for (int i = 0; i < p->num_items && p->items; i++) {
        const struct cut_item *item = &p->items[i];
        if (item->out_bytes < 0)
            return refuse_negative("out_bytes", i, item->out_bytes, err);
        if (item->weight_bytes < 0)
            return refuse_negative("weight_bytes", i, item->weight_bytes, err);
        if (item->train_bytes < 0)
            return refuse_negative("train_bytes", i, item->train_bytes, err);
        if (item->stash_bytes < 0)
            return refuse_negative("stash_bytes", i, item->stash_bytes, err);
        if (item->tied_bytes < 0)
            return refuse_negative("tied_bytes", i, item->tied_bytes, err);
        act += item->out_bytes;
        memory += (wide)item->weight_bytes + item->train_bytes + item->tied_bytes +
                  live * ((wide)item->stash_bytes + item->out_bytes);
    }
    for (int e = 0; e < p->num_skips; e++) {
        const struct cut_skip *skip = &p->skips[e];
        if (skip->from < 0 || skip->to >= p->num_items || skip->from >= skip->to)
            return err_set(err, ERR_INPUT, "skip edge %d -> %d must go forward inside items 0..%d",
                           skip->from, skip->to, p->num_items - 1);
        if (skip->bytes < 0)
            return err_set(err, ERR_INPUT, "skip edge %d -> %d: bytes must not be negative",
                           skip->from, skip->to);
        act += skip->bytes;
    }
    if (act > INT64_MAX || memory > INT64_MAX)
        return err_set(err, ERR_INPUT, "the sum of the items' bytes overflows");
    for (int k = 0; k + 1 < p->num_stages && p->links; k++) {
        const struct cut_link *link = &p->links[k];
        if (!(link->bytes_per_s >= 1 && link->bytes_per_s <= 1e18))
            return err_set(err, ERR_INPUT, "link %d: bandwidth must be 1..10^18 B/s, got %g", k,
                           link->bytes_per_s);
        if (link->latency_ns < 0)
            return err_set(err, ERR_INPUT, "link %d: latency must not be negative, got %lld", k,
                           (long long)link->latency_ns);
        wide ns = act * 1000000000 / (wide)(uint64_t)(link->bytes_per_s + 0.5) + 1;
        if ((ns + link->latency_ns) * p->num_microbatches > INT64_MAX / 8)
            return err_set(err, ERR_INPUT, "link %d: the time of a step's transfers overflows", k);
    }
    return OK;
}

static enum status check_problem(const struct cut_problem *p, struct err *err)
{
    enum status rc = cut_check_counts(p->num_items, p->num_stages, err);
    if (rc != OK)
        return rc;
    if (p->num_frozen < 0 || p->num_frozen > p->num_items)
        return err_set(err, ERR_INPUT, "frozen items must be 0..%d, got %d", p->num_items,
                       p->num_frozen);
    if (p->num_microbatches < 1 || p->num_microbatches > INT32_MAX)
        return err_set(err, ERR_INPUT, "micro-batches must be 1..%d, got %lld", INT32_MAX,
                       (long long)p->num_microbatches);
    if (p->num_classes < 1 || p->num_classes > CLASSES_MAX)
        return err_set(err, ERR_INPUT, "classes of devices must be 1..%d, got %d", CLASSES_MAX,
                       p->num_classes);
    for (int k = 0; k < p->num_stages; k++)
        if (class_of(p, k) < 0 || class_of(p, k) >= p->num_classes)
            return err_set(err, ERR_INPUT, "stage %d: class must be 0..%d, got %d", k,
                           p->num_classes - 1, class_of(p, k));
    if (p->num_skips < 0)
        return err_set(err, ERR_INPUT, "skip edges must not be negative, got %d", p->num_skips);
    return check_items(p, err);
}

/* Check the problem and build the tables. On failure the caller still calls solver_clear(). */
static enum status prepare(struct solver *s, const struct cut_problem *p, struct err *err)
{
    size_t n, stages;
    enum status rc = check_problem(p, err);
    if (rc != OK)
        return rc;
    *s = (struct solver){.p = p, .n = p->num_items, .num_stages = p->num_stages};
    n = (size_t)s->n;
    stages = (size_t)s->num_stages;
    s->compute = malloc((size_t)p->num_classes * (n + 1) * sizeof *s->compute);
    s->fixed = calloc(n + 1, sizeof *s->fixed);
    s->stash = calloc(n + 1, sizeof *s->stash);
    s->tied = calloc(n + 1, sizeof *s->tied);
    s->least_send = calloc(stages, sizeof *s->least_send);
    s->low = calloc(stages + 1, sizeof *s->low);
    s->high = calloc(stages + 1, sizeof *s->high);
    s->rows = calloc(stages + 1, sizeof *s->rows);
    if (!s->compute || !s->fixed || !s->stash || !s->tied || !s->least_send || !s->low ||
        !s->high || !s->rows)
        return err_nomem(err);
    for (int kind = 0; kind < p->num_classes; kind++) {
        int64_t *prefix = s->compute + (size_t)kind * (n + 1);
        prefix[0] = 0;
        for (int i = 0; i < s->n; i++) {
            const struct cut_time *t = &p->times[(size_t)kind * n + (size_t)i];
            if (t->fwd_ns < 0 || t->bwd_input_ns < 0 || t->bwd_weight_ns < 0 || t->update_ns < 0 ||
                t->bwd_rest_ns < 0 || t->fwd_nograd_ns < 0)
                return err_set(err, ERR_INPUT, "item %d: times must not be negative", i);
            wide sum = prefix[i] + compute_of(p, kind, i);
            if (sum > INT64_MAX / 2)
                return err_set(err, ERR_INPUT, "the sum of the times overflows at item %d", i);
            prefix[i + 1] = (int64_t)sum;
        }
    }
    for (int i = 0; i < s->n && p->items; i++) {
        const struct cut_item *item = &p->items[i];
        s->fixed[i + 1] = s->fixed[i] + item->weight_bytes + (active(p, i) ? item->train_bytes : 0);
        s->tied[i + 1] = s->tied[i] + item->tied_bytes;
        s->stash[i + 1] = s->stash[i] + (active(p, i) ? item->stash_bytes : 0);
    }
    fill_least_sends(s);
    return prepare_skips(s, err);
}

/* Allocate the table of D for the current bands. */
static enum status lay_rows(struct solver *s, struct err *err)
{
    int64_t count = 0;
    for (int k = 0; k <= s->num_stages; k++)
        count += s->high[k] - s->low[k] + 1;
    if (count > STATES_MAX)
        return err_set(err, ERR_INPUT, "cutting %d items into %d stages needs more than 1 GiB",
                       s->n, s->num_stages);
    free(s->states);
    s->states = malloc((size_t)count * sizeof *s->states);
    if (!s->states)
        return err_nomem(err);
    for (int64_t i = 0; i < count; i++)
        s->states[i] = FAR;
    count = 0;
    for (int k = 0; k <= s->num_stages; k++) {
        s->rows[k] = s->states + count;
        count += s->high[k] - s->low[k] + 1;
    }
    s->rows[s->num_stages][0] = 0;
    return OK;
}

/* D(k, a) of step 3. s->span must be up to date for boundary a. */
static int64_t best_of(const struct solver *s, int k, int a, int64_t bound, int64_t lower)
{
    int b = s->low[k + 1] > a ? s->low[k + 1] : a + 1, last = s->high[k + 1];
    int64_t best = bound + 1, limit = INT64_MAX;
    if (s->p->mem_limit_bytes)
        limit = s->p->mem_limit_bytes[k];
    for (; b <= last; b++) {
        int64_t compute, cost, behind = s->rows[k + 1][b - s->low[k + 1]];
        if (behind >= best)
            continue;
        compute = compute_ns(s, k, a, b);
        if (join(s->p, compute, s->least_send[k]) >= best)
            break;
        if (limit < INT64_MAX && memory_of(s, k, a, b) > limit)
            break; /* memory only grows with b */
        cost = join(s->p, compute, sends_ns(s, k, a, b, s->span[b]));
        if (cost < behind)
            cost = behind;
        if (cost < lower)
            cost = lower;
        if (cost < best) {
            best = cost;
            if (best == lower)
                break;
        }
    }
    return best <= bound ? best : FAR;
}

/* Update entering[] and span[] from boundary a + 1 to a: edges that start at item a no longer start
 * below the boundary. */
static void step_spans(struct solver *s, int a)
{
    const struct cut_problem *p = s->p;
    struct spans span;
    if (p->num_skips == 0)
        return;
    for (int e = s->first_edge[a]; e < s->first_edge[a + 1]; e++) {
        const struct cut_skip *skip = &p->skips[s->order[e]];
        s->entering[skip->to].bytes -= skip->bytes;
        s->entering[skip->to].grad_bytes -= active(p, a) ? skip->bytes : 0;
    }
    span = s->cross[a];
    for (int b = a; b <= s->n; b++) {
        s->span[b] = span;
        if (b < s->n) {
            span.bytes -= s->entering[b].bytes;
            span.grad_bytes -= s->entering[b].grad_bytes;
        }
    }
}

/* Compute D for all states (step 3). The outer loop is over a, so span[] is updated once per a. */
static void fill_states(struct solver *s, int64_t bound, int64_t lower)
{
    int top = s->num_stages - 1; /* the last stage whose band reaches up to a */
    /* All edges start below n; step_spans() subtracts them again. */
    for (int e = 0; e < s->p->num_skips; e++) {
        const struct cut_skip *skip = &s->p->skips[e];
        s->entering[skip->to].bytes += skip->bytes;
        s->entering[skip->to].grad_bytes += active(s->p, skip->from) ? skip->bytes : 0;
    }
    for (int a = s->n - 1; a >= 0; a--) {
        step_spans(s, a);
        while (top > 0 && s->low[top] > a)
            top--;
        for (int k = top; k >= 0 && s->high[k] >= a; k--)
            if (s->low[k] <= a)
                s->rows[k][a - s->low[k]] = best_of(s, k, a, bound, lower);
    }
}

/* Bytes that cross both boundaries, computed from every edge. */
static struct spans span_of(const struct cut_problem *p, int a, int b)
{
    struct spans span = {0};
    for (int e = 0; e < p->num_skips; e++) {
        if (p->skips[e].from < a && p->skips[e].to >= b) {
            span.bytes += p->skips[e].bytes;
            span.grad_bytes += active(p, p->skips[e].from) ? p->skips[e].bytes : 0;
        }
    }
    return span;
}

/* Read the lexicographically smallest cut within `most` from the finished table. */
static void walk(const struct solver *s, int64_t most, int *first_item)
{
    int a = 0;
    first_item[0] = 0;
    for (int k = 0; k < s->num_stages; k++) {
        int b = s->low[k + 1] > a ? s->low[k + 1] : a + 1;
        for (;; b++) {
            if (s->rows[k + 1][b - s->low[k + 1]] > most)
                continue;
            if (s->p->mem_limit_bytes && memory_of(s, k, a, b) > s->p->mem_limit_bytes[k])
                continue;
            if (join(s->p, compute_ns(s, k, a, b), sends_ns(s, k, a, b, span_of(s->p, a, b))) <=
                most)
                break;
        }
        first_item[k + 1] = a = b;
    }
}

/* Report why not even the relaxed problem has a solution. Only memory can be the reason: the bound
 * `everything` allows any time. */
static enum status refuse_memory(struct solver *s, int64_t everything, struct err *err)
{
    const struct cut_problem *p = s->p;
    int64_t largest_limit = 0;
    int stage;
    for (int k = 0; k < s->num_stages; k++)
        if (p->mem_limit_bytes[k] > largest_limit)
            largest_limit = p->mem_limit_bytes[k];
    for (int i = 0; i < s->n; i++) {
        int64_t least = INT64_MAX;
        bool fits_somewhere = false;
        for (int k = 0; k < s->num_stages && !fits_somewhere; k++) {
            int64_t bytes = memory_growing(s, k, i, i + 1);
            fits_somewhere = bytes <= p->mem_limit_bytes[k];
            if (bytes < least)
                least = bytes;
        }
        if (!fits_somewhere)
            return err_set(err, ERR_INFEASIBLE,
                           "no cut fits the memory: item %d alone needs %lld B, the largest stage "
                           "has %lld B",
                           i, (long long)least, (long long)largest_limit);
    }
    stage = fill_high(s, everything);
    if (stage >= s->num_stages - 1)
        return err_set(
            err, ERR_INFEASIBLE,
            "no cut of %d items into %d stages fits the memory: filled completely, they hold "
            "items 0..%d",
            s->n, s->num_stages, s->high[s->num_stages] - 1);
    return err_set(err, ERR_INFEASIBLE,
                   "no cut of %d items into %d stages fits the memory: nothing fits into stage %d",
                   s->n, s->num_stages, stage);
}

/* An upper bound of any stage's cost. */
static int64_t cost_of_everything(const struct solver *s)
{
    const struct cut_problem *p = s->p;
    int64_t most = 0, act = 0;
    for (int kind = 0; kind < p->num_classes; kind++) {
        int64_t all = s->compute[(size_t)(kind + 1) * (size_t)(s->n + 1) - 1];
        if (all > most)
            most = all;
    }
    for (int i = 0; i < s->n && p->items; i++)
        act += p->items[i].out_bytes;
    for (int e = 0; e < p->num_skips; e++)
        act += p->skips[e].bytes;
    int64_t slowest = 0;
    for (int k = 0; k + 1 < s->num_stages && p->links; k++) {
        int64_t ns = 2 * send_ns(&p->links[k], act) * p->num_microbatches;
        if (ns > slowest)
            slowest = ns;
    }
    return most + 2 * slowest; /* cannot overflow: check_items(), prepare() */
}

enum status cut_solve(const struct cut_problem *p, struct cut *cut, struct err *err)
{
    struct solver s = {0};
    struct cut got = {0};
    int64_t low = 0, high, lower, bound, slack;
    enum status rc = prepare(&s, p, err);
    if (rc != OK)
        goto out;
    got.num_stages = p->num_stages;
    got.num_items = p->num_items;
    got.first_item = malloc(((size_t)p->num_stages + 1) * sizeof *got.first_item);
    if (!got.first_item) {
        rc = err_nomem(err);
        goto out;
    }
    const int64_t everything = cost_of_everything(&s);
    high = everything;
    if (fill_high(&s, high) < p->num_stages || !fill_low(&s, high)) {
        rc = refuse_memory(&s, everything, err);
        goto out;
    }
    while (low < high) { /* step 1 */
        int64_t middle = low + (high - low) / 2;
        if (fill_high(&s, middle) == p->num_stages && fill_low(&s, middle))
            high = middle;
        else
            low = middle + 1;
    }
    lower = low;
    for (bound = lower, slack = lower / 64 + 1;;) { /* steps 2 to 4 */
        if (fill_high(&s, bound) == p->num_stages && fill_low(&s, bound)) {
            rc = lay_rows(&s, err);
            if (rc != OK)
                goto out;
            fill_states(&s, bound, lower);
            if (s.rows[0][0] <= bound)
                break;
        }
        if (bound >= everything) {
            rc = err_set(err, ERR_INFEASIBLE, "no cut of %d items into %d stages fits the memory",
                         p->num_items, p->num_stages);
            goto out;
        }
        bound = slack < everything - lower ? lower + slack : everything;
        slack = slack <= everything / 4 ? slack * 4 : everything;
    }
    got.max = s.rows[0][0];
    walk(&s, got.max, got.first_item);
    *cut = got;
    got = (struct cut){0};
out:
    solver_clear(&s);
    cut_clear(&got);
    return rc;
}

void cut_evaluate(const struct cut_problem *p, const int *first_item, int64_t *stage_ns,
                  int64_t *memory_bytes)
{
    for (int k = 0; k < p->num_stages; k++) {
        int a = first_item[k], b = first_item[k + 1];
        int64_t compute = 0, sends = 0, out_bytes = 0, grad_bytes = 0, fixed = 0, stash = 0;
        int64_t tied = 0;
        for (int i = a; i < b; i++) {
            compute += (int64_t)compute_of(p, class_of(p, k), i);
            if (p->items) {
                fixed += p->items[i].weight_bytes + (active(p, i) ? p->items[i].train_bytes : 0);
                stash += active(p, i) ? p->items[i].stash_bytes : 0;
                tied += a > 0 ? p->items[i].tied_bytes : 0;
            }
        }
        for (int e = 0; e < p->num_skips; e++) {
            const struct cut_skip *skip = &p->skips[e];
            if (skip->from >= a && skip->from < b && skip->to >= b)
                out_bytes += skip->bytes;
            if (skip->from < a && skip->to >= a && skip->to < b && active(p, skip->from))
                grad_bytes += skip->bytes;
        }
        if (p->links && k + 1 < p->num_stages)
            sends += send_ns(&p->links[k], out_bytes + (p->items ? p->items[b - 1].out_bytes : 0));
        if (p->links && k > 0 && (p->num_frozen == 0 || a > p->num_frozen))
            sends +=
                send_ns(&p->links[k - 1], grad_bytes + (p->items ? p->items[a - 1].out_bytes : 0));
        if (stage_ns)
            stage_ns[k] = join(p, compute, sends * p->num_microbatches);
        if (memory_bytes)
            memory_bytes[k] = fixed + stash * (p->recompute || !p->live ? 1 : p->live[k]) + tied +
                              kept_inputs(p, k, a, b);
    }
}
