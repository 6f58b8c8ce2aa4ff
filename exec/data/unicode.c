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

bool unicode_without_forms(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x7fd,   0x7fd  },
        {0x898,   0x89f  },
        {0x8ca,   0x8d3  },
        {0x9fe,   0x9fe  },
        {0xc3c,   0xc3c  },
        {0xd3b,   0xd3c  },
        {0xeba,   0xeba  },
        {0x1715,  0x1715 },
        {0x1abf,  0x1ace },
        {0x1df6,  0x1dfa },
        {0x32ff,  0x32ff },
        {0xa7f2,  0xa7f4 },
        {0xa82c,  0xa82c },
        {0xab69,  0xab69 },
        {0x10781, 0x10785},
        {0x10787, 0x107b0},
        {0x107b2, 0x107ba},
        {0x10d24, 0x10d27},
        {0x10eab, 0x10eac},
        {0x10efd, 0x10eff},
        {0x10f46, 0x10f50},
        {0x10f82, 0x10f85},
        {0x11070, 0x11070},
        {0x1133b, 0x1133b},
        {0x1145e, 0x1145e},
        {0x11839, 0x1183a},
        {0x11930, 0x11938},
        {0x1193d, 0x1193e},
        {0x11943, 0x11943},
        {0x119e0, 0x119e0},
        {0x11a34, 0x11a34},
        {0x11a47, 0x11a47},
        {0x11a99, 0x11a99},
        {0x11d42, 0x11d42},
        {0x11d44, 0x11d45},
        {0x11d97, 0x11d97},
        {0x11f41, 0x11f42},
        {0x16ff0, 0x16ff1},
        {0x1e030, 0x1e06d},
        {0x1e08f, 0x1e08f},
        {0x1e130, 0x1e136},
        {0x1e2ae, 0x1e2ae},
        {0x1e2ec, 0x1e2ef},
        {0x1e4ec, 0x1e4ef},
        {0x1f16c, 0x1f16c},
        {0x1fbf0, 0x1fbf9}
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && code >= ranges[i].first; i++)
        if (code <= ranges[i].last)
            return true;
    return false;
}
