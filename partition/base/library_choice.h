/* partition/base/library_choice.h - an algorithm of a device's library, chosen by measuring.
 * profiles/store/choice.h keeps choices, exec/base/backend.h gives and takes them. */
#pragma once

enum { CHOICE_BYTES = 160 };
struct library_choice {
    char problem[CHOICE_BYTES]; /* "bf16 tn 3072x8192x768 ..." */
    char answer[CHOICE_BYTES];  /* the chosen algorithm, in the library's format */
};
