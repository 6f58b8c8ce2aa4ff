#include "partition/base/safe_text.h"

#include <stdio.h>
#include <string.h>

char safe_byte(char before, char byte)
{
    const unsigned char lead = (unsigned char)before, c = (unsigned char)byte;
    if (lead == 0xc2 && c >= 0x80 && c < 0xa0)
        return (char)0xbf;
    return (c < ' ' && c != '\n' && c != '\t') || c == 0x7f ? '?' : byte;
}

/* The ways to quote a word. */
enum form { PLAIN, SINGLE, ESCAPED };

static enum form form_of(const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    enum form form = *path && path[strspn(path, plain)] == '\0' ? PLAIN : SINGLE;
    char before = 0;
    for (const char *c = path; *c; before = *c++)
        if (*c == '\n' || *c == '\t' || safe_byte(before, *c) != *c)
            form = ESCAPED;
    return form;
}

const char *shell_path(const char *path, char *word, size_t size)
{
    const enum form form = form_of(path);
    static const char *const opens[] = {"", "'", "$'"}, *const closes[] = {"", "'", "'"};
    size_t used = (size_t)snprintf(word, size, "%s%s", opens[form], *path == '-' ? "./" : "");
    for (const char *c = path; *c && used < size; c++) {
        const unsigned char byte = (unsigned char)*c;
        char part[8];
        if (form == SINGLE && *c == '\'')
            snprintf(part, sizeof part, "'\\''");
        else if (form == ESCAPED && (*c == '\'' || *c == '\\'))
            snprintf(part, sizeof part, "\\%c", *c);
        else if (form == ESCAPED && (byte < ' ' || byte >= 0x7f))
            snprintf(part, sizeof part, "\\%03o", byte);
        else
            snprintf(part, sizeof part, "%c", *c);
        used += (size_t)snprintf(word + used, size - used, "%s", part);
    }
    if (used < size)
        used += (size_t)snprintf(word + used, size - used, "%s", closes[form]);
    return used < size ? word : "DIR";
}
