#include "sim/run/cache_levels.h"

#include <stdlib.h>
#include <string.h>

#include "partition/step/cache_rule.h"

static double *row(const struct cache_levels *levels)
{
    return levels->have + levels->view * (levels->num_layers + 1);
}

enum status cache_levels_init(struct cache_levels *levels, int num_layers, int64_t views,
                              double room, bool whole, struct err *err)
{
    const size_t width = (size_t)num_layers + 1;
    struct cache_levels got = {
        .num_layers = num_layers, .views = views, .room = room, .whole = whole};
    got.have = calloc((size_t)views * width, sizeof *got.have);
    got.left = calloc(width, sizeof *got.left);
    if (!got.have || !got.left) {
        cache_levels_clear(&got);
        return err_nomem(err);
    }
    *levels = got;
    return OK;
}

void cache_levels_clear(struct cache_levels *levels)
{
    free(levels->have);
    free(levels->left);
    *levels = (struct cache_levels){0};
}

void cache_levels_begin(struct cache_levels *levels, int64_t epoch)
{
    levels->view = epoch % levels->views;
    memset(levels->left, 0, ((size_t)levels->num_layers + 1) * sizeof *levels->left);
}

void cache_levels_visit(struct cache_levels *levels, double share, bool cached, int level)
{
    const double *have = row(levels);
    if (cached)
        levels->left[level] += share * levels->room;
    for (int l = 1; l <= levels->num_layers && !cached; l++)
        levels->left[l] += share * have[l];
}

void cache_levels_end(struct cache_levels *levels)
{
    memcpy(row(levels), levels->left, ((size_t)levels->num_layers + 1) * sizeof *levels->left);
}

void cache_levels_fall(struct cache_levels *levels, int level)
{
    const int each = levels->num_layers + 1;
    for (int64_t view = 0; view < levels->views; view++)
        for (int l = level + 1; l < each; l++)
            levels->have[view * each + l] = 0;
    for (int l = level + 1; l < each; l++)
        levels->left[l] = 0;
}

void cache_levels_from(const struct cache_levels *levels, int level, int64_t microbatch_size,
                       double *from)
{
    const double *have = row(levels);
    from[0] = 1;
    for (int l = 1; l <= level; l++) {
        from[l] = cache_share(have[l], microbatch_size, levels->whole);
        from[0] -= from[l];
    }
    if (from[0] < 1e-12) /* a rounding error of the sum */
        from[0] = 0;
}
