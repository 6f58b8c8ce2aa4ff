/* Classes and folding by utf8proc, whose version of Unicode decides (2.8: Unicode 15). */
#include "exec/data/unicode.h"

#include <utf8proc.h>

enum unicode_class unicode_class_of(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return UNICODE_SPACE;
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
        return UNICODE_CONTROL;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return UNICODE_PUNCTUATION;
    case UTF8PROC_CATEGORY_MN:
        return UNICODE_MARK;
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return UNICODE_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return UNICODE_NUMBER;
    default:
        return UNICODE_OTHER;
    }
}

int unicode_fold(uint32_t code, uint32_t to[UNICODE_FOLD_MAX])
{
    enum { LONGEST = 4 }; /* code points of a canonical decomposition */
    utf8proc_int32_t parts[LONGEST];
    int n = 0;
    if (code < 0x80) {
        to[0] = code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
        return 1;
    }
    const utf8proc_int32_t lower = utf8proc_tolower((utf8proc_int32_t)code);
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(lower, parts, LONGEST, UTF8PROC_DECOMPOSE, NULL);
    for (utf8proc_ssize_t i = 0; i < count && i < LONGEST && n < UNICODE_FOLD_MAX; i++)
        if (unicode_class_of((uint32_t)parts[i]) != UNICODE_MARK)
            to[n++] = (uint32_t)parts[i];
    return n;
}
