#include "exec/data/unicode.h"

uint32_t utf8_next(const char *text, size_t bytes, size_t *at)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text + *at;
    size_t left = bytes - *at, length;
    uint32_t code;
    (*at)++;
    if (p[0] < 0x80)
        return p[0];
    length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || length > left)
        return UNICODE_BAD;
    code = p[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return UNICODE_BAD;
        code = code << 6 | (p[i] & 0x3f);
    }
    if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return UNICODE_BAD;
    *at += length - 1;
    return code;
}

int utf8_put(uint32_t code, char *to)
{
    int length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (length == 1) {
        to[0] = (char)code;
        return 1;
    }
    for (int i = length - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)((0xf00u >> length & 0xff) | code);
    return length;
}

enum unicode_class unicode_class_of(uint32_t code)
{
    int low = 0, high = unicode_num_runs; /* the run lies in [low, high) */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (unicode_runs[middle] >> 3 <= code)
            low = middle;
        else
            high = middle;
    }
    return unicode_runs[low] & 7;
}

int unicode_fold(uint32_t code, uint32_t to[UNICODE_FOLD_MAX])
{
    /* Hangul by arithmetic: The Unicode Standard, section 3.12. */
    enum { S = 0xac00, L = 0x1100, V = 0x1161, T = 0x11a7, NV = 21, NT = 28, NS = 11172 };
    int low = 0, high = unicode_num_folds, n = 0;
    if (code < 0x80) {
        to[0] = code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
        return 1;
    }
    if (code >= S && code < S + NS) {
        uint32_t index = code - S;
        to[0] = L + index / (NV * NT);
        to[1] = V + index % (NV * NT) / NT;
        to[2] = T + index % NT;
        return index % NT ? 3 : 2;
    }
    while (low < high) {
        int middle = (low + high) / 2;
        if (unicode_folds[middle].from < code)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < unicode_num_folds && unicode_folds[low].from == code) {
        while (n < UNICODE_FOLD_MAX && unicode_folds[low].to[n]) {
            to[n] = unicode_folds[low].to[n];
            n++;
        }
        return n;
    }
    to[0] = code;
    return unicode_class_of(code) == UNICODE_MARK ? 0 : 1;
}
