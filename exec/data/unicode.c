#include "exec/data/unicode.h"

enum unicode_class unicode_class_of(uint32_t code)
{
    int low = 0, high = unicode_num_runs; /* the run of `code` is in [low, high) */
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
    /* Hangul syllables are decomposed by arithmetic (The Unicode Standard, section 3.12). */
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
