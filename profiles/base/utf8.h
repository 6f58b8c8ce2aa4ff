/* profiles/base/utf8.h - code points of UTF-8 text, for JSON and for tokenizers. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { UNICODE_BAD = 0xfffd }; /* the replacement character; valid text may contain it too */

/* Read the code point at text[*at] and move *at past it. Requires *at < bytes. A byte that does
 * not start a valid sequence (overlong, surrogate, beyond 10FFFF, cut off) gives UNICODE_BAD, and
 * *at moves one byte. */
uint32_t utf8_next(const char *text, size_t bytes, size_t *at);

/* Write a code point to `to`; returns its length, 1..4 bytes. */
int utf8_put(uint32_t code, char *to);
