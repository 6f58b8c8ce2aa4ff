#include "exec/change/move.h"

#include <stdlib.h>

#include "partition/plan/autodp.h"

/* TIED_TABLE is used as an item: the head's copy of a tied table. */
enum { TIED_TABLE = -1, FIRST_TAG = 16 };

struct move {
    const struct deployment_base *base;
    struct deployment *old, *next;
    struct transition transition;  /* owned */
    struct parcels sent, received; /* of this rank */
};

static bool is_item(const struct param *param, int item)
{
    return item == TIED_TABLE ? param->tied_copy : param->item == item && !param->tied_copy;
}

/* The param of a deployment that holds the n-th tensor of an item. If the deployment has no copy of a tied
 * table, the table itself is found in its place. */
static struct param *find_param(const struct deployment *deployment, int item, int nth)
{
    struct param *table = NULL;
    for (int s = 0; deployment->stages && s <= deployment->plan.plan.num_stages; s++) {
        struct stage *stage = deployment->stages[s];
        struct param *params = stage ? stage_params(stage) : NULL;
        int seen = 0;
        for (int i = 0; stage && i < stage_num_params(stage); i++) {
            if (is_item(&params[i], item) && seen++ == nth)
                return &params[i];
            if (item == TIED_TABLE && params[i].item == 0 && !table)
                table = &params[i];
        }
    }
    return item == TIED_TABLE && nth == 0 ? table : NULL;
}

/* Whether the head gets a table of its own in this change (freeze.head alone). */
static bool head_unties(const struct move *move)
{
    return move->old->plan.workload->setting.model != move->next->plan.workload->setting.model;
}

/* The param of the old deployment that becomes the n-th tensor of an item. The table that a head gets is
 * its last tensor (head_spec()), and comes from the shared one on the head's rank. */
static struct param *source_param(const struct move *move, int item, int nth)
{
    const struct model *model = &move->base->job->model;
    struct param *own = find_param(move->old, item, nth), of[STAGE_ITEM_PARAMS];
    int num = 0;
    if (own || item != model->num_items - 1 || !head_unties(move) ||
        !deployment_has(move->old, move->old->plan.plan.num_stages - 1) ||
        stage_item_params(model, item, of, &num, NULL) != OK)
        return own;
    return nth == num ? find_param(move->old, TIED_TABLE, 0) : NULL;
}

/* List what this rank sends from the old deployment, or receives into the next. The parcels of a
 * transfer have one tag and follow each other in the order of the item's params. */
static enum status list_parcels(struct move *move, bool sends, struct err *err)
{
    const struct deployment *deployment = sends ? move->old : move->next;
    const struct parcel_room *room = move->base->parcel_room;
    struct parcels *parcels = sends ? &move->sent : &move->received;
    const int here = move->base->comm->rank;
    enum status rc = OK;
    for (int64_t i = 0; rc == OK && i < move->transition.num_transfers; i++) {
        const struct transfer *t = &move->transition.transfers[i];
        const int item = t->tied ? TIED_TABLE : t->item;
        const struct param *p;
        if ((sends ? t->from : t->to) != here)
            continue;
        for (int n = 0; rc == OK &&
                        (p = sends ? source_param(move, item, n) : find_param(deployment, item, n));
             n++) {
            float *const *tensors = t->kind == TRANSFER_OPTIMIZER ? p->state : &p->weight;
            const int num = t->kind == TRANSFER_OPTIMIZER ? STAGE_STATES : 1;
            for (int k = 0; rc == OK && k < num; k++)
                if (tensors[k])
                    rc = parcels_add(parcels, room, tensors[k],
                                     p->num_elems * (int64_t)sizeof(float), sends ? t->to : t->from,
                                     FIRST_TAG + (int)i, err);
        }
    }
    return rc;
}

/* Keep items [first, end) that stay on this rank: their buffers change hands. Where the two stages
 * lay an item out differently, its tensors are copied. */
static void keep_items(struct move *move, int first, int end)
{
    struct backend *be = move->base->backend;
    for (int s = 0; s <= move->next->plan.plan.num_stages; s++) {
        struct stage *stage = move->next->stages ? move->next->stages[s] : NULL;
        for (int item = first; stage && item < end; item++) {
            bool adopted = false;
            for (int o = 0;
                 move->old->stages && item >= 0 && o <= move->old->plan.plan.num_stages && !adopted;
                 o++)
                adopted = move->old->stages[o] && stage_adopt(stage, move->old->stages[o], item);
            for (int n = 0; !adopted; n++) {
                struct param *to = NULL, *from = source_param(move, item, n);
                int seen = 0;
                for (int i = 0; i < stage_num_params(stage) && !to; i++)
                    if (is_item(&stage_params(stage)[i], item) && seen++ == n)
                        to = &stage_params(stage)[i];
                if (!to || !from)
                    break;
                int64_t bytes = to->num_elems * (int64_t)sizeof(float);
                be->copy(be, to->weight, from->weight, bytes);
                for (int k = 0; k < STAGE_STATES; k++)
                    if (to->state[k] && from->state[k])
                        be->copy(be, to->state[k], from->state[k], bytes);
            }
        }
    }
}

enum status move_weights(const struct deployment_base *base, struct deployment *old,
                         struct deployment *next, int64_t *bytes, struct err *err)
{
    struct move move = {.base = base, .old = old, .next = next};
    enum status rc = transition_build(&base->job->model, &next->plan.cluster, &old->plan.plan,
                                      &next->plan.plan, &move.transition, err);
    rc = comm_agree(base->comm, rc, err);
    *bytes = move.transition.bytes;
    THEN(list_parcels(&move, true, err));
    if (rc == OK) /* the old tensors are complete, and the new ones cleared */
        rc = base->backend->sync(base->backend, err);
    THEN(parcels_start(&move.sent, true, base->comm, base->parcel_room, err));
    if (rc == OK) { /* the tied table first, before its buffer changes hands */
        const int head = base->job->model.num_items - 1;
        keep_items(&move, TIED_TABLE, 0);
        keep_items(&move, head, head + 1);
        keep_items(&move, 0, head);
        rc = list_parcels(&move, false, err);
    }
    THEN(parcels_finish(&move.sent, &move.received, base->comm, base->parcel_room, err));
    for (int s = 0; rc == OK && next->stages && s <= next->plan.plan.num_stages; s++)
        if (next->stages[s])
            stage_round_weights(next->stages[s]);
    THEN(base->backend->sync(base->backend, err));
    /* After a failure messages may be in flight in tensors and windows, but not in these lists. */
    parcels_clear(&move.sent);
    parcels_clear(&move.received);
    transition_clear(&move.transition);
    return rc;
}
