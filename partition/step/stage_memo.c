#include "partition/step/stage_memo.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 1024 };

struct stage_memo {
    int64_t round;
    bool used[ENTRIES];
    struct stage_memo_entry entries[ENTRIES]; /* half a MiB: set when they are used first */
};

struct stage_memo *stage_memo_new(void)
{
    struct stage_memo *memo = malloc(sizeof *memo);
    if (memo) {
        memo->round = 1;
        memset(memo->used, 0, sizeof memo->used);
    }
    return memo;
}

void stage_memo_free(struct stage_memo *memo)
{
    for (int i = 0; memo && i < ENTRIES; i++)
        if (memo->used[i])
            free(memo->entries[i].buckets);
    free(memo);
}

void stage_memo_forget(struct stage_memo *memo)
{
    memo->round++;
}

struct stage_memo_entry *stage_memo_find(struct stage_memo *memo, const struct plan *plan,
                                         int stage, int class_index)
{
    const int first = plan->first_item[stage], end = plan->first_item[stage + 1],
              layers = plan->recompute_layers ? plan->recompute_layers[stage] : 0;
    const unsigned hash = (unsigned)stage * 131u + (unsigned)first * 31u + (unsigned)end * 7u +
                          (unsigned)layers * 61u + (unsigned)class_index * 17u;
    struct stage_memo_entry *entry = &memo->entries[hash % ENTRIES];
    if (!memo->used[hash % ENTRIES])
        *entry = (struct stage_memo_entry){0};
    memo->used[hash % ENTRIES] = true;
    if (entry->round == memo->round && entry->stage == stage && entry->first_item == first &&
        entry->end_item == end && entry->layers == layers && entry->class_index == class_index)
        return entry;
    entry->round = memo->round;
    entry->stage = stage;
    entry->class_index = class_index;
    entry->first_item = first;
    entry->end_item = end;
    entry->layers = layers;
    entry->fit = -1;
    entry->known = entry->buckets_known = false;
    return entry;
}

bool stage_memo_keep_buckets(struct stage_memo_entry *entry, const struct bucket *buckets,
                             int num_buckets)
{
    if (num_buckets > 0) {
        struct bucket *copy = realloc(entry->buckets, (size_t)num_buckets * sizeof *copy);
        if (!copy)
            return false;
        entry->buckets = copy;
        memcpy(copy, buckets, (size_t)num_buckets * sizeof *copy);
    }
    entry->num_buckets = num_buckets;
    entry->buckets_known = true;
    return true;
}
