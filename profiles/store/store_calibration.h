/* profiles/store/store_calibration.h - named calibrations in the store. */
#pragma once

#include "partition/cost/calibration.h"
#include "profiles/store/store.h"

/* Write a calibration under its name, in place of one of that name. */
enum status store_put_calibration(struct store *store, const struct calibration *calibration,
                                  struct err *err);

/* ERR_INFEASIBLE "no calibration 'x' in store 'y'", with the names that there are; ERR_INPUT: a
 * factor that this version does not know, or one that is missing. */
enum status store_get_calibration(struct store *store, const char *name,
                                  struct calibration *calibration, struct err *err);

/* ERR_INFEASIBLE as store_get_calibration(). */
enum status store_remove_calibration(struct store *store, const char *name, struct err *err);

/* The names of all calibrations, ascending: *names is fresh, n entries (free() it). */
enum status store_list_calibrations(struct store *store, char (**names)[CALIBRATION_NAME_MAX],
                                    int *n, struct err *err);
