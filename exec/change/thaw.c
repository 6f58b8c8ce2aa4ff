#include "exec/change/thaw.h"

#include <stdlib.h>

enum { KEEP_TAG = 8 };

/* The n-th param of an item in this rank's stages; copy: the head's copy of a tied table. NULL: this
 * rank does not hold it. */
static struct param *param_here(const struct deployment *deployment, int item, int nth, bool copy)
{
    for (int s = 0; deployment->stages && s <= deployment->plan.plan.num_stages; s++) {
        struct stage *stage = deployment->stages[s];
        int seen = 0;
        for (int i = 0; stage && i < stage_num_params(stage); i++) {
            struct param *param = &stage_params(stage)[i];
            if (copy ? param->tied_copy : param->item == item && !param->tied_copy && seen++ == nth)
                return param;
        }
    }
    return NULL;
}

/* The rank that holds an item in the first replica of a deployment; rank 0 of it holds the prefix. */
static int owner_of(const struct deployment *deployment, int item)
{
    const struct plan *plan = &deployment->plan.plan;
    int s = 0;
    while (s + 1 < plan->num_stages && item >= plan->first_item[s + 1])
        s++;
    return plan->device[item < plan->first_item[0] ? 0 : deployment->plan.full->rank_of_stage[s]];
}

/* Send a tensor to rank 0, or receive it there; the memory is host memory. */
static enum status pass_on(const struct comm *comm, float *values, int64_t bytes, int owner,
                           struct err *err)
{
    struct comm_request request = {0};
    enum status rc = comm->rank == 0
                         ? comm_irecv(comm->all, values, bytes, owner, KEEP_TAG, &request, err)
                         : comm_isend(comm->all, values, bytes, 0, KEEP_TAG, &request, err);
    return rc == OK ? comm_wait(&request, err) : rc;
}

/* Keep one item; block is rank 0's. */
static enum status keep_item(const struct deployment_base *base,
                             const struct deployment *deployment, int item, float *block,
                             struct err *err)
{
    struct backend *be = base->backend;
    struct param params[STAGE_ITEM_PARAMS];
    struct kept_tensor tensors[KEPT_TENSORS];
    const int owner = owner_of(deployment, item), here = base->comm->rank;
    int num = 0;
    enum status rc = stage_item_params(&base->job->model, item, params, &num, err);
    const int n = rc == OK ? kept_list(base->job, params, num, tensors, NULL) : 0;
    for (int i = 0; rc == OK && i < n; i++) {
        const struct param *param = param_here(deployment, item, tensors[i].param, false);
        const int64_t bytes = params[tensors[i].param].num_elems * (int64_t)sizeof(float);
        float *values = block ? block + tensors[i].first : NULL, *own = NULL;
        if (here != owner && here != 0)
            continue;
        if (!values)
            values = own = malloc((size_t)bytes);
        if (!values)
            return err_nomem(err);
        if (here == owner) {
            be->copy_out(be, values, param->state[tensors[i].state], bytes);
            rc = be->sync(be, err);
        }
        if (rc == OK && owner != 0)
            rc = pass_on(base->comm, values, bytes, owner, err);
        free(own);
    }
    return rc;
}

enum status thaw_keep(const struct deployment_base *base, const struct deployment *deployment,
                      int first, int end, struct kept_state *kept, struct err *err)
{
    const bool zero = base->comm->rank == 0;
    enum status rc = OK;
    for (int item = first; zero && rc == OK && item < end; item++)
        rc = kept_make(kept, base->job, item, err);
    rc = comm_agree(base->comm, rc, err);
    for (int item = first; rc == OK && item < end; item++)
        rc = keep_item(base, deployment, item, zero ? kept->blocks[item] : NULL, err);
    return rc;
}

static enum status return_item(const struct deployment_base *base,
                               const struct deployment *deployment, int item, float *block,
                               int64_t *bytes, struct err *err)
{
    struct backend *be = base->backend;
    struct param params[STAGE_ITEM_PARAMS];
    struct kept_tensor tensors[KEPT_TENSORS];
    int num = 0;
    enum status rc = stage_item_params(&base->job->model, item, params, &num, err);
    const int n = rc == OK ? kept_list(base->job, params, num, tensors, NULL) : 0;
    for (int i = 0; rc == OK && i < n; i++) {
        const int64_t size = params[tensors[i].param].num_elems * (int64_t)sizeof(float);
        const int state = tensors[i].state;
        const bool table = item == 0 && tensors[i].param == 0;
        struct param *to[2] = {param_here(deployment, item, tensors[i].param, false),
                               table ? param_here(deployment, item, 0, true) : NULL};
        float *own = block ? NULL : malloc((size_t)size);
        float *values = block ? block + tensors[i].first : own;
        if (!values)
            return err_nomem(err);
        rc = comm_bcast(base->comm->all, values, size, 0, err);
        for (int k = 0; rc == OK && k < 2; k++)
            if (to[k])
                be->copy_in(be, to[k]->state[state], values, size);
        THEN(be->sync(be, err));
        *bytes += size * (base->comm->size - 1);
        free(own);
    }
    return rc;
}

enum status thaw_return(const struct deployment_base *base, const struct deployment *deployment,
                        int first, int end, struct kept_state *kept, int64_t *bytes,
                        struct err *err)
{
    const bool zero = base->comm->rank == 0;
    enum status rc = OK;
    if (zero && !kept_has(kept, first, end))
        rc = err_set(err, ERR_INPUT,
                     "the optimizer state of '%s' was not kept, so it cannot train "
                     "again",
                     base->job->model.items[first].name);
    rc = comm_agree(base->comm, rc, err);
    for (int item = first; rc == OK && item < end; item++)
        rc = return_item(base, deployment, item, zero ? kept->blocks[item] : NULL, bytes, err);
    if (zero)
        kept_drop(kept, first, end);
    return rc;
}
