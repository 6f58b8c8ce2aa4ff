/* profiles/frameworks/flag_rows.h - short forms of the rows of command_flags.h, for the files that hold
 * a framework's table. Include it last. */
#pragma once

#include "profiles/frameworks/command_flags.h"

/* clang-format off */
#define COUNT(name, key) {name, FLAG_COUNT, key, NULL}
#define NUMBER(name, key) {name, FLAG_NUMBER, key, NULL}
#define REAL(name, key) {name, FLAG_REAL, key, NULL}
#define ON(name) {name, FLAG_ON, NULL, NULL}
#define SETS(name, key, value) {name, FLAG_ON, key, value}
#define WORD(name) {name, FLAG_WORD, NULL, NULL}
#define LIST(name) {name, FLAG_LIST, NULL, NULL}
#define FREE(name) {name, FLAG_FREE, NULL, NULL}
#define LEFT(name, says) {name, FLAG_LEFT_OUT, NULL, says}
#define REFUSED(name, says) {name, FLAG_REFUSED, NULL, says}
/* clang-format on */
