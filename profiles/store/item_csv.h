/* profiles/store/item_csv.h - a profile from a table of item times.
 *
 * CSV with a header and a row per item and micro-batch size:
 *     kind,item,microbatch,fwd_ns,bwd_input_ns,bwd_weight_ns,update_ns
 * in any order of columns; update_ns may be absent (0). kind is that of the device, one per file;
 * item is the name of an item of an explicit model. */
#pragma once

#include "profiles/store/profile.h"

/* Whether a text starts with the header of such a table. */
bool item_csv_is(const char *text);
/* Make a profile named "items-KIND" of the text. `where` names it in errors. ERR_INPUT names the
 * line: an unknown or missing column, a wrong number of cells, a bad time, a second kind, a row that
 * is there twice, a last line without its end. *profile must be zeroed. */
enum status item_csv_read(const char *text, const char *where, struct profile *profile,
                          struct err *err);
