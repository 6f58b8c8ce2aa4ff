#include "exec/stage/stash.h"

#include <stdlib.h>
#include <string.h>

/* Rounded up to 64 bytes, the alignment of alloc(). */
static int64_t pad_bytes(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

void stash_sizes(const struct stage *stage, int i, int64_t *bytes, int64_t *out)
{
    arch_stash(stage->spec.model, &stage->arch, stage->layers[i].item, stage->spec.max_samples,
               stage->spec.backend->elem_bytes, !stage->spec.backend->host_memory, bytes, out);
}

/* Lay a set out over mem and return its bytes; with set NULL only count. */
static int64_t lay_out(struct stage *stage, struct stash_set *set, char *mem)
{
    int64_t at = 0;
    for (int i = 0; i < stage->num_items; i++) {
        int64_t bytes[MAX_STASH], out;
        stash_sizes(stage, i, bytes, &out);
        const bool last = i + 1 == stage->num_items;
        if (i <
            stage_first_active(stage)) { /* frozen: keep only the input of the first active item */
            memset(bytes, 0, sizeof bytes);
            if (i + 1 < stage_first_active(stage))
                out = 0;
        }
        for (int b = 0; b < MAX_STASH; b++) {
            if (set)
                set->buf[i][b] = mem + at;
            at += pad_bytes(bytes[b]);
        }
        if (set)
            set->y[i] = mem + at;
        at += last ? 0 : pad_bytes(out);
    }
    return at;
}

/* Like lay_out() for a pass that keeps nothing: all items use the same memory in turn. */
static int64_t lay_out_shared(struct stage *stage, struct stash_set *set, char *mem)
{
    int64_t most = 0;
    for (int i = 0; i < stage->num_items; i++) {
        int64_t bytes[MAX_STASH], out, at = 0;
        stash_sizes(stage, i, bytes, &out);
        for (int b = 0; b < MAX_STASH; b++) {
            if (set)
                set->buf[i][b] = mem + at;
            at += pad_bytes(bytes[b]);
        }
        most = at > most ? at : most;
    }
    return most;
}

enum status stash_make(struct stage *stage, struct stash_set *set, bool shared, struct err *err)
{
    const size_t n = (size_t)stage->num_items;
    if (!set->buf)
        set->buf = calloc(n, sizeof *set->buf);
    if (!set->y)
        set->y = calloc(n, sizeof *set->y);
    if (!set->buf || !set->y)
        return err_nomem(err);
    const int64_t bytes = shared ? lay_out_shared(stage, NULL, NULL) : lay_out(stage, NULL, NULL);
    enum status rc = stage_grab(stage, bytes, &set->mem, err);
    if (rc == OK) {
        if (shared)
            lay_out_shared(stage, set, set->mem);
        else
            lay_out(stage, set, set->mem);
    }
    return rc;
}

void stash_drop(struct stage *stage, struct stash_set *set, bool shared)
{
    const int64_t bytes = shared ? lay_out_shared(stage, NULL, NULL) : lay_out(stage, NULL, NULL);
    stage_drop(stage, &set->mem, bytes);
}

enum status stash_take(struct stage *stage, struct stash_set **set, struct err *err)
{
    for (int i = 0; i < stage->num_slots; i++) {
        struct stash_set *s = &stage->sets[i];
        if (s->used)
            continue;
        enum status rc = s->mem ? OK : stash_make(stage, s, false, err);
        if (rc == OK) {
            s->used = true;
            *set = s;
        }
        return rc;
    }
    return err_set(err, ERR_INPUT, "stage of items %d..%d: more than %d micro-batches in flight",
                   stage->spec.first_item, stage->spec.end_item - 1, stage->num_slots);
}
