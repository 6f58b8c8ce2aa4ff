#include "cli/plans/plan_change.h"

#include <stdlib.h>

#include "cli/plans/plan_show.h"
#include "partition/base/units.h"

static const char *transfer_kind_name(enum transfer_kind kind)
{
    static const char *const names[] = {"weights", "optimizer", "frozen"};
    return names[kind];
}

void plan_change_add(struct json *json, const struct job *job, const struct plan *old,
                     const struct transition *transition)
{
    struct json *one = json_add_object(json, "transition");
    json_add_int(one, "from_frozen_layers", old->num_frozen_layers);
    plan_show_add_plan(json_add_object(one, "from"), old);
    json_add_int(one, "transition_ns", transition->ns);
    json_add_int(one, "moved_devices", transition->moved_devices);
    json_add_int(one, "total_bytes", transition->bytes);
    json_add_int(one, "inside_nodes_bytes", transition->bytes_inside);
    json_add_int(one, "between_nodes_bytes", transition->bytes_between);
    struct json *list = json_add_array(one, "transfers");
    for (int64_t i = 0; i < transition->num_transfers; i++) {
        const struct transfer *transfer = &transition->transfers[i];
        struct json *row = json_add_object(list, NULL);
        json_add_int(row, "item", transfer->item);
        json_add_string(row, "name", job->model.items[transfer->item].name);
        json_add_bool(row, "tied", transfer->tied);
        json_add_string(row, "kind", transfer_kind_name(transfer->kind));
        json_add_int(row, "from", transfer->from);
        json_add_int(row, "to", transfer->to);
        json_add_int(row, "bytes", transfer->bytes);
    }
}

/* Print the transfers. Neighbouring items with equal sender, receiver and kind share one row. */
enum status plan_change_print(const struct job *job, const struct plan *old,
                              const struct transition *transition, struct err *err)
{
    char total[32], inside[32], between[32], time[32], layout[128];
    printf("\nfrom %s (%s): %s to %s (%s inside nodes, %s between), %s\n",
           COUNT_TEXT(old->num_frozen_layers, "frozen layer"),
           plan_layout_text(old, layout, sizeof layout),
           format_bytes(transition->bytes, total, sizeof total),
           COUNT_TEXT(transition->moved_devices, "device"),
           format_bytes(transition->bytes_inside, inside, sizeof inside),
           format_bytes(transition->bytes_between, between, sizeof between),
           format_ns(transition->ns, time, sizeof time));
    if (transition->num_transfers > 0)
        printf("%5s %5s %-9s %11s %12s  %s\n", "from", "to", "kind", "bytes", "node to node",
               "items");
    bool *done = calloc((size_t)transition->num_transfers + 1, sizeof *done);
    if (!done)
        return err_nomem(err);
    for (int64_t i = 0; i < transition->num_transfers; i++) {
        const struct transfer *a = &transition->transfers[i];
        if (done[i])
            continue;
        int64_t bytes = 0;
        for (int64_t j = i; j < transition->num_transfers && transition->transfers[j].to == a->to;
             j++) {
            const struct transfer *b = &transition->transfers[j];
            if (b->from == a->from && b->kind == a->kind)
                bytes += b->bytes;
        }
        printf("%5d %5d %-9s %11s %5d to %-4d ", a->from, a->to, transfer_kind_name(a->kind),
               format_bytes(bytes, total, sizeof total), job->cluster.devices[a->from].node,
               job->cluster.devices[a->to].node);
        for (int64_t j = i; j < transition->num_transfers && transition->transfers[j].to == a->to;
             j++) {
            const struct transfer *b = &transition->transfers[j];
            if (b->from == a->from && b->kind == a->kind) {
                printf(" %s%s", job->model.items[b->item].name, b->tied ? " (tied copy)" : "");
                done[j] = true;
            }
        }
        printf("\n");
    }
    free(done);
    return OK;
}
