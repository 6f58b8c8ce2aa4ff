/* Exact min-max cuts of plain sizes, by bisection over the answer with a greedy test on prefix
 * sums. Each test moves one end of the bracket to a value at which the greedy cut changes, so a few
 * tests are enough (Nicol, J. Parallel Distrib. Comput. 23, 1994; Pinar and Aykanat, J. Parallel
 * Distrib. Comput. 64, 2004). */
#include "partition/plan/cut.h"

#include <stdlib.h>

#include "partition/base/units.h"

#define ITEMS_MAX (1 << 20)

void cut_clear(struct cut *cut)
{
    free(cut->first_item);
    *cut = (struct cut){0};
}

static enum status check_counts(int num_items, int num_stages, struct err *err)
{
    if (num_stages < 1)
        return err_set(err, ERR_INPUT, "stages must be at least 1, got %d", num_stages);
    if (num_items < 1 || num_items > ITEMS_MAX)
        return err_set(err, ERR_INPUT, "items must be 1..%d, got %d", ITEMS_MAX, num_items);
    if (num_stages > num_items)
        return err_set(err, ERR_INFEASIBLE, "cannot cut %s into %s", COUNT_TEXT(num_items, "item"),
                       COUNT_TEXT(num_stages, "stage"));
    return OK;
}

/* The last index e in [first, n] with prefix[e] <= limit. Requires prefix[first] <= limit. */
static int last_within(const int64_t *prefix, int first, int n, int64_t limit)
{
    int low = first, high = n, step = 1;
    while (low + step <= n && prefix[low + step] <= limit) { /* gallop, because stages are short */
        low += step;
        step *= 2;
    }
    if (low + step <= n)
        high = low + step - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (prefix[middle] <= limit)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Whether num_stages stages of at most *size hold all items. If so, *size falls to the largest
 * stage of the greedy cut. Otherwise it rises to the smallest size at which the greedy cut differs.
 */
static bool fits(const int64_t *prefix, int n, int num_stages, int64_t *size)
{
    int64_t largest = 0, next = INT64_MAX;
    int first = 0;
    for (int k = 0; k < num_stages && first < n; k++) {
        int64_t limit;
        if (!add_ok(prefix[first], *size, &limit))
            limit = INT64_MAX;
        int end = last_within(prefix, first, n, limit);
        if (prefix[end] - prefix[first] > largest)
            largest = prefix[end] - prefix[first];
        if (end < n && prefix[end + 1] - prefix[first] < next)
            next = prefix[end + 1] - prefix[first];
        first = end;
    }
    *size = first == n ? largest : next;
    return first == n;
}

enum status cut_sizes(const int64_t *sizes, int num_items, int num_stages, struct cut *cut,
                      struct err *err)
{
    struct cut got = {.num_stages = num_stages, .num_items = num_items};
    int64_t *prefix = NULL, low = 0, high;
    enum status rc = check_counts(num_items, num_stages, err);
    if (rc != OK)
        return rc;
    prefix = malloc(((size_t)num_items + 1) * sizeof *prefix);
    got.first_item = malloc(((size_t)num_stages + 1) * sizeof *got.first_item);
    if (!prefix || !got.first_item) {
        rc = err_nomem(err);
        goto out;
    }
    prefix[0] = 0;
    for (int i = 0; i < num_items; i++) {
        if (sizes[i] < 0) {
            rc = err_set(err, ERR_INPUT, "size of item %d must not be negative, got %lld", i,
                         (long long)sizes[i]);
            goto out;
        }
        if (!add_ok(prefix[i], sizes[i], &prefix[i + 1])) {
            rc = err_set(err, ERR_INPUT, "the sum of the sizes overflows at item %d", i);
            goto out;
        }
        if (sizes[i] > low)
            low = sizes[i];
    }
    high = prefix[num_items];
    if (high / num_stages + (high % num_stages > 0) > low)
        low = high / num_stages + (high % num_stages > 0);
    while (low < high) { /* invariant: the answer is in [low, high], high is attained */
        int64_t middle = low + (high - low) / 2;
        if (fits(prefix, num_items, num_stages, &middle))
            high = middle;
        else
            low = middle;
    }
    /* The lexicographically smallest cut: fill the stages from the right. */
    got.max = high;
    got.first_item[num_stages] = num_items;
    for (int k = num_stages - 1, end = num_items; k >= 0; k--) {
        int first = end;
        while (first > 0 && prefix[end] - prefix[first - 1] <= high)
            first--;
        got.first_item[k] = end = first;
    }
    for (int k = 1; k < num_stages; k++)
        if (got.first_item[k] <= got.first_item[k - 1])
            got.first_item[k] = got.first_item[k - 1] + 1;
    *cut = got;
    got = (struct cut){0};
out:
    free(prefix);
    cut_clear(&got);
    return rc;
}
