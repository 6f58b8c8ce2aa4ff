/* profiles/store/choice.h - the fastest measured algorithm of a device's library, for each problem.
 *
 * A library may have several algorithms for a problem, and their results differ in bits. Timing
 * them chooses another one from run to run. The store therefore keeps a choice for each device and
 * set of libraries, and every run uses it. A profile replaces a choice where it timed the problem
 * again: because the library no longer takes the stored answer (another cuDNN), or because the user
 * asked for it (`elapse profile --retune`). */
#pragma once

#include "partition/base/library_choice.h"
#include "partition/base/status.h"

/* The device and libraries of a choice, as in struct profile_info. */
struct choice_place {
    const char *device, *libraries;
};

struct store;

/* Read all choices of a place, sorted by problem. *list is fresh (free() it), or NULL if *num is 0.
 * A store of an older version has none. Errors of the store. */
enum status store_get_choices(struct store *store, const struct choice_place *place,
                              struct library_choice **list, int *num, struct err *err);
/* Add the choices in one transaction; each replaces the answer to the same problem. Errors of the
 * store. */
enum status store_put_choices(struct store *store, const struct choice_place *place,
                              const struct library_choice *list, int num, struct err *err);
