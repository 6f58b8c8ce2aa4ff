/* exec/data/jinja.h - chat templates: the part of Jinja that published ones use.
 *
 * A model is asked in the chat_template beside its tokenizer, so it is trained in it. Statements: if,
 * for (with if, else, break, continue), set (also of a namespace, and of a block), macro, generation.
 * Expressions: those of Jinja, with slices and the filters, tests, methods and functions of the tables
 * in jinja_values.c and jinja.c. Anything else is refused by its name. Blanks around tags are trimmed
 * as transformers asks of Jinja (trim_blocks, lstrip_blocks). Source: documentation of Jinja 3.1
 * (template designer), and of transformers ("Templates for chat models");
 * tests/reference/chats_peer.py compares texts and tokens with both.
 *
 * Each byte of a rendered text knows whose it is, so that only an assistant's words count in the loss. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/status.h"
#include "profiles/json/json.h"

struct jinja; /* opaque; does not change, any thread may render */

/* Parse a template. ERR_INPUT: it is malformed, or has what is not known; the message names it and
 * the line. On OK the caller owns *jinja. */
enum status jinja_new(const char *source, struct jinja **jinja, struct err *err);
void jinja_free(struct jinja *jinja); /* NULL is fine */
/* The template marks by {% generation %} what an assistant says. */
bool jinja_generates(const struct jinja *jinja);
/* It asks for today's date. */
bool jinja_has_date(const struct jinja *jinja);

/* A mark of a byte: 0, the template's own; JINJA_GENERATED, inside {% generation %}; else the
 * number, from 1, of the message of an assistant whose content it is. */
enum { JINJA_GENERATED = UINT16_MAX, JINJA_MAX_MESSAGES = UINT16_MAX - 1 };
struct jinja_text {
    char *at;        /* owned; a NUL follows */
    uint16_t *marks; /* owned; [bytes] */
    size_t bytes;
};
void jinja_text_clear(struct jinja_text *text);

/* Render with the members of an object as variables; those of "messages" whose role is assistant
 * give marks. ERR_INPUT: the template refuses the messages, or asks for what is not known, or takes
 * more than 10^7 steps or 256 MiB. *text must be zeroed or cleared. */
enum status jinja_render(const struct jinja *jinja, const struct json *variables,
                         struct jinja_text *text, struct err *err);
