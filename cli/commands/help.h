/* cli/commands/help.h - `elapse help TOPIC`: what a MODEL, a CLUSTER or a job file may hold.
 *
 * Every list comes from the table that the code reads, so help and readers agree. */
#pragma once

#include <stdbool.h>

struct topic {
    const char *name, *summary;
    void (*print)(void); /* to stdout */
};
/* By index; NULL past the end. */
const struct topic *topic_at(int i);
const struct topic *topic_find(const char *name);

/* Print what completion and man pages need beside the options, a line each, with tabs between:
 * "topic", name, summary; "word", CLASS (MODEL, CLUSTER, DEVICE, FIGURE), a name, what it is;
 * "key", a dotted job key, its values with spaces between, its meaning. */
void help_rows(void);
