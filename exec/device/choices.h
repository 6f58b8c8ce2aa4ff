/* exec/device/choices.h - the choices of a backend's libraries (backend.h's choose()) from and to
 * the profile store, the same on all ranks. */
#ifndef ELAPSE_EXEC_DEVICE_CHOICES_H
#define ELAPSE_EXEC_DEVICE_CHOICES_H

#include "exec/base/backend.h"
#include "exec/comm/comm.h"
#include "profiles/profile.h"
#include "profiles/store.h"

/* Give the backend what rank 0's store holds for the device and libraries of `present` (rank 0's
 * too); a backend with nothing to choose is left alone. Before the first kernel. store NULL: none,
 * as on other ranks; comm NULL: this rank alone, else collective over the message group. Errors of
 * the store; ERR_NOMEM. */
enum status choices_give(const struct comm *comm, struct store *store,
                         const struct profile_info *present, struct backend *be, struct err *err);

/* What the backend chose by time, into the store (NULL: nowhere). */
enum status choices_keep(struct store *store, const struct profile_info *present,
                         struct backend *be, struct err *err);

#endif
