/* profiles/utf8.h - code points of UTF-8 text, for JSON and for tokenizers. Pure. */
#ifndef ELAPSE_PROFILES_UTF8_H
#define ELAPSE_PROFILES_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { UNICODE_BAD = 0xfffd }; /* the replacement character, which text may hold, too */

/* The code point at text[*at], and *at behind it. A byte that starts no valid sequence (overlong,
 * surrogate, beyond 10FFFF, cut off) is UNICODE_BAD and one byte long. *at < bytes. */
uint32_t utf8_next(const char *text, size_t bytes, size_t *at);

/* Appends a code point; returns its 1..4 bytes. */
int utf8_put(uint32_t code, char *to);

#endif
