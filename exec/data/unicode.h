/* exec/data/unicode.h - classes and folding of code points, for tokenizers. Pure; O(1). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiles/base/utf8.h"

enum { UNICODE_FOLD_MAX = 3 };

/* General categories, in the order of the values: all others, Z*, C* (also unassigned), P*, Mn, L*,
 * N*. */
enum unicode_class {
    UNICODE_OTHER,
    UNICODE_SPACE,
    UNICODE_CONTROL,
    UNICODE_PUNCTUATION,
    UNICODE_MARK,
    UNICODE_LETTER,
    UNICODE_NUMBER
};

enum unicode_class unicode_class_of(uint32_t code);

/* Lower case, canonically decomposed, without marks. Writes 0..3 code points to `to`; returns how
 * many. */
int unicode_fold(uint32_t code, uint32_t to[UNICODE_FOLD_MAX]);

/* Whether the normal forms of PyPI's `tokenizers` (0.23.3), whose tables are older than Unicode 10,
 * leave this code point as it is, where utf8proc decomposes, composes or reorders it. A model was
 * trained on the ids that `tokenizers` gives. Found by trying all code points alone and beside marks
 * of other combining classes. */
bool unicode_without_forms(uint32_t code);
