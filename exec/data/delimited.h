/* exec/data/delimited.h - records of CSV and TSV text, as RFC 4180 has them.
 *
 * A field in quotes may hold separators, line ends and doubled quotes. Lines end with LF or CRLF.
 * Empty lines are passed over. Pure, but it changes the text: fields are unquoted in place. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

struct delimited_field {
    char *text; /* in the reader's text; not terminated */
    int64_t bytes;
};
struct delimited {
    char *at, *end; /* borrowed: the text that is left */
    char separator;
    int64_t next_line;              /* number of the line at `at`, from 1 */
    int64_t line;                   /* of the present record */
    struct delimited_field *fields; /* owned; of the present record */
    int num_fields;
    int64_t room;
};

/* Read the next record. *more: false at the end. ERR_INPUT: a quote that is not closed, bytes after
 * a closing quote, more than 4,096 fields; the message has the line and begins with `what`. */
enum status delimited_next(struct delimited *reader, const char *what, bool *more, struct err *err);
void delimited_clear(struct delimited *reader);
