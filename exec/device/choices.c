#include "exec/device/choices.h"

#include <stdlib.h>

#include "profiles/store/choice.h"

static struct choice_place place_of(const struct profile_info *info)
{
    return (struct choice_place){.device = info->device_name, .libraries = info->libraries};
}

/* Broadcast rank 0's list. */
static enum status share(const struct comm *comm, struct library_choice **list, int *num,
                         struct err *err)
{
    enum status rc = comm_bcast(comm->all, num, sizeof *num, 0, err);
    if (rc != OK || *num == 0)
        return rc;
    if (comm->rank != 0)
        *list = calloc((size_t)*num, sizeof **list);
    rc = comm_agree(comm, *list ? OK : err_nomem(err), err);
    return rc == OK ? comm_bcast(comm->all, *list, *num * (int64_t)sizeof **list, 0, err) : rc;
}

enum status choices_give(const struct comm *comm, struct store *store,
                         const struct profile_info *present, struct backend *be, struct err *err)
{
    const struct choice_place place = place_of(present);
    struct library_choice *list = NULL;
    int num = 0;
    enum status rc = OK;
    if (!be->choose)
        return OK;
    if (store)
        rc = store_get_choices(store, &place, &list, &num, err);
    if (comm)
        rc = comm_agree(comm, rc, err);
    if (rc == OK && comm)
        rc = share(comm, &list, &num, err);
    THEN(be->choose(be, list, num, err));
    free(list);
    return rc;
}

enum status choices_keep(struct store *store, const struct profile_info *present,
                         struct backend *be, struct err *err)
{
    const struct choice_place place = place_of(present);
    const struct library_choice *list = NULL;
    const int num = store && be->choices ? be->choices(be, &list) : 0;
    return num > 0 ? store_put_choices(store, &place, list, num, err) : OK;
}
