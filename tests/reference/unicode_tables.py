"""Writes exec/data/unicode_tables.c: what the tokenizers need to know of each code point.

    python3 tests/reference/unicode_tables.py > exec/data/unicode_tables.c

Source: the Unicode Character Database in the version that Python's unicodedata carries.
Runs: code points of one class in a row, as first << 3 | class (classes of exec/data/unicode.h).
Folds: code points that lower-casing, canonical decomposition and dropping of marks (Mn) change, as
up to three code points. Hangul syllables decompose by arithmetic and are left out."""

import sys
import unicodedata as u

ORDER = ["OTHER", "SPACE", "CONTROL", "PUNCTUATION", "MARK", "LETTER", "NUMBER"]


def cls(c):
    cat = u.category(chr(c))
    if cat[0] == "Z":
        return 1
    if cat[0] == "C":
        return 2
    if cat[0] == "P":
        return 3
    if cat == "Mn":
        return 4
    if cat[0] == "L":
        return 5
    if cat[0] == "N":
        return 6
    return 0


def fold(c):
    text = u.normalize("NFD", chr(c).lower())
    return [ord(x) for x in text if u.category(x) != "Mn"]


def rows(values, per_line, form):
    for i in range(0, len(values), per_line):
        print("    " + " ".join(form(v) + "," for v in values[i : i + per_line]))


def main():
    runs, last = [], None
    folds = []
    for c in range(0x110000):
        k = cls(c)
        if k != last:
            runs.append(c << 3 | k)
            last = k
        if 0xD800 <= c < 0xE000 or 0xAC00 <= c < 0xD7A4 or k == 4:
            continue
        to = fold(c)
        if to != [c]:
            assert 1 <= len(to) <= 3, (c, to)
            folds.append((c, to + [0] * (3 - len(to))))
    print("/* Written by tests/reference/unicode_tables.py from Unicode %s; do not edit. */" % u.unidata_version)
    print('#include "exec/data/unicode_tables.h"\n')
    print("/* clang-format off */")
    print("const uint32_t unicode_runs[] = {")
    rows(runs, 11, lambda v: "0x%x" % v)
    print("};\nconst int unicode_num_runs = %d;\n" % len(runs))
    print("const struct unicode_folding unicode_folds[] = {")
    rows(folds, 4, lambda v: "{0x%x, {%s}}" % (v[0], ", ".join("0x%x" % x if x else "0" for x in v[1])))
    print("};\nconst int unicode_num_folds = %d;\n/* clang-format on */" % len(folds))
    print("runs %d folds %d" % (len(runs), len(folds)), file=sys.stderr)


main()
