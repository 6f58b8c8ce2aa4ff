#include "profiles/base/utf8.h"

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
