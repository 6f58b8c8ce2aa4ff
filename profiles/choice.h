/* profiles/choice.h - what a device's library was found fastest with, where it has several ways.
 *
 * Ways found by time differ from run to run, and their bits differ. So one that was found is kept
 * in the store for its device and libraries, never replaced, and every run is given it. */
#ifndef ELAPSE_PROFILES_CHOICE_H
#define ELAPSE_PROFILES_CHOICE_H

#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CHOICE_BYTES = 160 };
struct library_choice {
    char problem[CHOICE_BYTES]; /* "bf16 tn 3072x8192x768 ..." */
    char answer[CHOICE_BYTES];  /* in the library's terms */
};

/* Where they are kept. device and libraries as in struct profile_info. */
struct choice_place {
    const char *device, *libraries;
};

struct store;

/* All of a place, by problem; *list is fresh (free() it), NULL where *num is 0, as in a store of a
 * version that had none. Errors of the store. */
enum status store_get_choices(struct store *store, const struct choice_place *place,
                              struct library_choice **list, int *num, struct err *err);
/* Add those whose problem is new, in one transaction. Errors of the store. */
enum status store_put_choices(struct store *store, const struct choice_place *place,
                              const struct library_choice *list, int num, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
