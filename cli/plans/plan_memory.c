#include "cli/plans/plan_memory.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "partition/model/framework.h"
#include "partition/step/lower.h"

static const struct {
    const char *name;
    size_t offset;
} parts[] = {
    {"weights",   offsetof(struct memory_parts, weights)  },
    {"gradients", offsetof(struct memory_parts, gradients)},
    {"optimizer", offsetof(struct memory_parts, optimizer)},
    {"stash",     offsetof(struct memory_parts, stash)    },
    {"work",      offsetof(struct memory_parts, work)     },
    {"buffers",   offsetof(struct memory_parts, buffers)  },
    {"context",   offsetof(struct memory_parts, context)  },
    {"allocator", offsetof(struct memory_parts, allocator)},
};
enum { NUM_PARTS = sizeof parts / sizeof *parts };

static int64_t part_in(const struct memory_parts *of, int i)
{
    return *(const int64_t *)((const char *)of + parts[i].offset);
}

static int64_t part_of(const struct plan_memory *memory, int i)
{
    return part_in(&memory->parts, i);
}

void plan_memory_clear(struct plan_memory *memory)
{
    free(memory->ranks);
    *memory = (struct plan_memory){0};
}

struct plan_margin plan_margin_of(double headroom, const struct model *model,
                                  const struct cost *cost)
{
    const double doubt = framework_memory_doubt(model->framework, cost->memory_factor);
    struct plan_margin margin = doubt > 1
                                    ? (struct plan_margin){.memory = 1 - 1 / doubt, .nearly = 0.05}
                                    : (struct plan_margin){.memory = 0.08, .nearly = 0.02};
    margin.memory = headroom >= 0 ? headroom : margin.memory;
    return margin;
}

bool plan_memory_tight(int64_t peak_bytes, int64_t limit_bytes, double headroom)
{
    return limit_bytes != INT64_MAX && (double)peak_bytes > (double)limit_bytes * (1 - headroom);
}

bool plan_memory_print_tight(int64_t peak_bytes, int64_t limit_bytes, double headroom)
{
    char left[32], all[32], free_bytes[32];
    if (!plan_memory_tight(peak_bytes, limit_bytes, headroom))
        return false;
    printf("tight: %s of %s are left, the headroom is %s",
           format_bytes(limit_bytes - peak_bytes, left, sizeof left),
           format_bytes(limit_bytes, all, sizeof all),
           format_bytes((int64_t)(headroom * (double)limit_bytes), free_bytes, sizeof free_bytes));
    return true;
}

/* The longest time that the UPDATE of a rank's stages takes together. */
static int64_t longest_update(const struct workload *workload)
{
    int64_t longest = 0;
    for (int k = 0; k < workload->num_ranks; k++) {
        int64_t ns = 0;
        for (int s = 0; s < workload->num_stages; s++)
            if (workload->rank_of_stage[s] == k)
                ns += workload->stages[s].op_ns[OP_UPDATE][MB_FULL];
        longest = ns > longest ? ns : longest;
    }
    return longest;
}

/* Compare a plan whose optimizer is on the host with the same plan without. */
static enum status find_host(const struct setting *setting, const struct plan *plan,
                             const struct workload *away, struct plan_memory *memory,
                             struct err *err)
{
    struct plan on_device = *plan; /* borrows everything */
    struct workload workload = {0};
    struct schedule full = {0};
    if (!plan->layout.offload)
        return OK;
    on_device.layout.offload = false;
    const enum status rc = plan_lower(setting, &on_device, &workload, &full, err);
    for (int s = 0; rc == OK && s < workload.num_stages; s++) {
        const struct stage_cost *without = &workload.stages[s], *with = &away->stages[s];
        if (workload.rank_of_stage[s] == memory->rank)
            memory->host_bytes += without->weight_bytes + without->optim_bytes -
                                  with->weight_bytes - with->optim_bytes;
    }
    if (rc == OK) {
        memory->update_ns = longest_update(away);
        memory->device_update_ns = longest_update(&workload);
    }
    workload_clear(&workload);
    schedule_clear(&full);
    return rc;
}

enum status plan_memory_find(const struct setting *setting, const struct plan *plan,
                             struct plan_memory *memory, struct err *err)
{
    struct workload workload = {0};
    struct schedule full = {0};
    const size_t K = (size_t)plan->num_ranks;
    int64_t *limits = malloc(K * sizeof *limits);
    struct rank_memory *ranks = malloc(K * sizeof *ranks);
    enum status rc =
        limits && ranks ? plan_lower(setting, plan, &workload, &full, err) : err_nomem(err);
    if (rc == OK) {
        plan_memory_limits(plan, workload.setting.cluster, limits);
        rc = schedule_memory_limited(&full, &workload, limits, ranks, err);
    }
    if (rc == OK) {
        int least = 0;
        for (int k = 1; k < plan->num_ranks; k++)
            if (limits[k] - ranks[k].peak_bytes < limits[least] - ranks[least].peak_bytes)
                least = k;
        plan_memory_clear(memory);
        *memory = (struct plan_memory){.ranks = ranks,
                                       .num_ranks = plan->num_ranks,
                                       .rank = least,
                                       .peak_bytes = ranks[least].peak_bytes,
                                       .limit_bytes = limits[least],
                                       .parts = ranks[least].parts,
                                       .margin = plan_margin_of(0, setting->model, setting->cost)};
        ranks = NULL;
        rc = find_host(setting, plan, &workload, memory, err);
    }
    workload_clear(&workload);
    schedule_clear(&full);
    free(limits);
    free(ranks);
    return rc;
}

static void add_parts(struct json *object, const struct memory_parts *of)
{
    for (int i = 0; i < NUM_PARTS; i++)
        json_add_int(object, parts[i].name, part_in(of, i));
}

void plan_memory_add(struct json *json, const struct plan_memory *memory)
{
    add_parts(json_add_object(json, "memory"), &memory->parts);
    json_add_int(json, "memory_rank", memory->rank);
    if (memory->limit_bytes != INT64_MAX)
        json_add_int(json, "memory_limit_bytes", memory->limit_bytes);
    json_add_double(json, "memory_headroom", memory->margin.memory);
    json_add_bool(
        json, "memory_tight",
        plan_memory_tight(memory->peak_bytes, memory->limit_bytes, memory->margin.memory));
    struct json *ranks = json_add_array(json, "memory_ranks");
    for (int k = 0; k < memory->num_ranks; k++)
        add_parts(json_add_object(ranks, NULL), &memory->ranks[k].parts);
    if (memory->host_bytes > 0) {
        json_add_int(json, "host_bytes", memory->host_bytes);
        json_add_int(json, "update_ns", memory->update_ns);
        json_add_int(json, "device_update_ns", memory->device_update_ns);
    }
}

/* Three digits, as a person compares them: "113 GiB", "40.0 GiB". */
static const char *short_gib(int64_t bytes, char *text, size_t size)
{
    const double value = (double)bytes / (1 << 30);
    snprintf(text, size, value < 99.95 ? "%.1f GiB" : "%.0f GiB", value);
    return text;
}

const char *plan_memory_needs(const struct plan_memory *memory, char *text, size_t size)
{
    char need[32], have[32], part[32];
    snprintf(text, size, "needs %s, a device has %s",
             short_gib(memory->peak_bytes, need, sizeof need),
             short_gib(memory->limit_bytes, have, sizeof have));
    const char *before = ": ";
    for (int i = 0; i < NUM_PARTS; i++) {
        const size_t used = strlen(text);
        if (part_of(memory, i) == 0)
            continue;
        snprintf(text + used, size - used, "%s%s %s", before, parts[i].name,
                 short_gib(part_of(memory, i), part, sizeof part));
        before = ", ";
    }
    return text;
}

static void print_parts(const struct plan_memory *memory)
{
    char text[2][32];
    printf("tightest rank %d: %s of %s:", memory->rank,
           format_bytes(memory->peak_bytes, text[0], sizeof text[0]),
           format_bytes(memory->limit_bytes, text[1], sizeof text[1]));
    const char *before = " ";
    for (int i = 0; i < NUM_PARTS; i++) {
        if (part_of(memory, i) == 0)
            continue;
        printf("%s%s %s", before, parts[i].name,
               format_bytes(part_of(memory, i), text[0], sizeof text[0]));
        before = ", ";
    }
    printf("\n");
}

void plan_memory_print(const struct plan_memory *memory)
{
    char text[3][32];
    if (memory->limit_bytes != INT64_MAX)
        print_parts(memory);
    if (memory->host_bytes > 0)
        printf("optimizer in host memory: %s of rank %d; an update takes %s of a step, on the "
               "device %s\n",
               format_bytes(memory->host_bytes, text[0], sizeof text[0]), memory->rank,
               format_ns(memory->update_ns, text[1], sizeof text[1]),
               format_ns(memory->device_update_ns, text[2], sizeof text[2]));
    if (memory->limit_bytes != INT64_MAX || memory->host_bytes > 0)
        printf("\n");
}
