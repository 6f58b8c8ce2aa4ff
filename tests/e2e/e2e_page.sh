#!/bin/bash
# tests/e2e/e2e_page.sh - `elapse page`: the file, its module, and the page in a headless Chromium with the
# program's numbers (page_questions.py). ELAPSE_PAGE_QUESTIONS=200: more of them.
# group: slow
# seconds: 90
. "$(dirname "$0")/lib.sh"
begin

page=$tmp/whatif.html
check "page: it is written" "$elapse" page -o "$page"
expect "page: without a file it says how" 2 "hint: elapse page -o whatif.html" "$elapse" page
small_and_alone() {
    [ "$(stat -c %s "$page")" -lt 3000000 ] && ! grep -Eq '(src|href)="?(https?:)?//' "$page"
}
verify "page: it is one file under 3 MB that loads nothing" small_and_alone

if command -v chromium chromium-browser google-chrome >/dev/null; then
    PYTHONPATH=tests/e2e python3 tests/e2e/page_questions.py "$elapse" "$page" \
        "${ELAPSE_PAGE_QUESTIONS:-40}" "$tmp" 2>&1 | tee "$tmp/tap"
    [ "${PIPESTATUS[0]}" -eq 0 ] || report 1 "page: its questions" <"$tmp/tap"
else
    skip "page: in a browser" "chromium is missing"
fi
finish
