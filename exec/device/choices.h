/* exec/device/choices.h - hands the choices of a GPU's libraries (choose() of exec/base/backend.h)
 * from the profile store to all ranks, and back into the store. */
#pragma once

#include "exec/base/backend.h"
#include "exec/comm/comm.h"
#include "profiles/store/profile.h"
#include "profiles/store/store.h"

/* Give the backend the choices that rank 0's store holds for the device and libraries of `present`.
 * Only rank 0's store and `present` are read; store is NULL elsewhere, or if there is none. A
 * backend that has nothing to choose is left alone. Call it before the first kernel. comm NULL: for
 * this rank alone; else collective over the message group. Errors of the store; ERR_NOMEM. */
enum status choices_give(const struct comm *comm, struct store *store,
                         const struct profile_info *present, struct backend *be, struct err *err);

/* Write the choices that the backend made by timing into the store (NULL: nowhere). */
enum status choices_keep(struct store *store, const struct profile_info *present,
                         struct backend *be, struct err *err);
