/* Splits text into records (delimited.h). */
#include "exec/data/delimited.h"

#include <stdlib.h>

#include "partition/base/arrays.h"

enum { MAX_FIELDS = 4096 };

void delimited_clear(struct delimited *reader)
{
    free(reader->fields);
    *reader = (struct delimited){0};
}

static enum status add_field(struct delimited *reader, struct delimited_field field,
                             const char *what, struct err *err)
{
    if (reader->num_fields == MAX_FIELDS)
        return err_set(err, ERR_INPUT, "%s line %lld has more than %d columns", what,
                       (long long)reader->line, MAX_FIELDS);
    if (!array_grow(&reader->fields, reader->num_fields + 1, &reader->room, sizeof *reader->fields))
        return err_nomem(err);
    reader->fields[reader->num_fields++] = field;
    return OK;
}

/* Length of the line end at `at`: 2 for CRLF, 1 for LF, 0 for none. */
static int line_end(const struct delimited *reader, const char *at)
{
    if (at < reader->end && *at == '\n')
        return 1;
    return reader->end - at >= 2 && at[0] == '\r' && at[1] == '\n' ? 2 : 0;
}

static bool field_ends(const struct delimited *reader, const char *at)
{
    return at == reader->end || *at == reader->separator || line_end(reader, at) > 0 ||
           (*at == '\r' && at + 1 == reader->end);
}

/* Reads the field in quotes at `at`, and moves past its closing quote. */
static enum status read_quoted(struct delimited *reader, struct delimited_field *field,
                               const char *what, struct err *err)
{
    const int64_t opened = reader->next_line;
    char *from = reader->at + 1, *to = from;
    field->text = to;
    for (;; from++) {
        if (from == reader->end) {
            err_set(err, ERR_INPUT, "%s line %lld: a quote is opened and not closed", what,
                    (long long)opened);
            err_hint(err, "a field that begins with a quote ends with one, and quotes in it are "
                          "doubled (RFC 4180)");
            return ERR_INPUT;
        }
        if (*from == '"') {
            if (from + 1 == reader->end || from[1] != '"')
                break;
            from++;
        }
        reader->next_line += *from == '\n';
        *to++ = *from;
    }
    field->bytes = to - field->text;
    reader->at = from + 1;
    if (field_ends(reader, reader->at))
        return OK;
    err_set(err, ERR_INPUT, "%s line %lld: text after a closing quote", what,
            (long long)reader->next_line);
    err_hint(err, "a field that begins with a quote ends with one, and quotes in it are doubled "
                  "(RFC 4180)");
    return ERR_INPUT;
}

enum status delimited_next(struct delimited *reader, const char *what, bool *more, struct err *err)
{
    enum status rc = OK;
    int length;
    reader->num_fields = 0;
    while ((length = line_end(reader, reader->at)) > 0) { /* empty lines */
        reader->at += length;
        reader->next_line++;
    }
    *more = reader->at < reader->end;
    reader->line = reader->next_line;
    for (bool last = !*more; rc == OK && !last;) {
        struct delimited_field field = {.text = reader->at};
        if (reader->at < reader->end && *reader->at == '"') {
            rc = read_quoted(reader, &field, what, err);
        } else {
            while (!field_ends(reader, reader->at))
                reader->at++;
            field.bytes = reader->at - field.text;
        }
        THEN(add_field(reader, field, what, err));
        if (rc == OK && reader->at < reader->end && *reader->at == reader->separator) {
            reader->at++;
            continue;
        }
        last = true;
        if (rc == OK && reader->at < reader->end) { /* LF, CRLF, or a CR at the very end */
            length = line_end(reader, reader->at);
            reader->at += length > 0 ? length : 1;
            reader->next_line++;
        }
    }
    return rc;
}
