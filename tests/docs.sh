#!/bin/bash
# tests/docs.sh - run the commands of README.md and of every page in docs and examples: each block fenced as sh, in
# order, in one scratch folder a page, where `elapse` is in PATH, and the folders of the project, README's
# runs and its profile are at hand. A block that cannot run here says why, so that none is left out in silence.
#
#   tests/docs.sh          at reduced size (make test)
#   FILE=PAGES tests/docs.sh   those pages; without it the reduced form runs README.md, the tutorial and commands.md, and
#                          leaves the others to e2e_pages.sh and e2e_what_if.sh
#   tests/docs.sh full     as they stand (make test-docs)
#   KEEP=FOLDER            with docs/gallery.md among the pages: keeps what it draws (tests/bench/gallery.py)
#   tests/docs.sh write    and put what commands print now into the pages (review the diff)
#
# A comment on the line before a block steers it:
#   <!-- docs: s/--epochs 10/--epochs 1/ -->   this sed script makes the reduced form
#   <!-- docs: full -->                        runs in full only
#   <!-- docs: needs sqlite3 -->               runs where that program is installed
#   <!-- docs: skip WHY -->                    never runs here
# A block fenced as text is what the block before it prints. One without a word after the fence is not compared: times
# that were measured. A line "..." stands for any number of lines,
# once a block. Lines with the time that an answer took ("judged in", "simulated in", "events in") and of progress are left out.
# One TAP line a block.
# seconds: 20
. "$(dirname "$0")/e2e/lib.sh"
begin
mode=${1:-reduced}
if git rev-parse -q --verify HEAD >/dev/null 2>&1; then
    check "figures of speed are no older than they say" python3 tests/bench/speed_table.py check
    check "the gallery is no older than it says" python3 tests/bench/gallery.py check
else
    skip "figures of speed are no older than they say" "no history here"
    skip "the gallery is no older than it says" "no history here"
fi
check "the factor of README's first picture is that of the simulator" python3 tests/bench/gallery.py factor
root=$PWD
export PATH="$(dirname "$elapse"):$PATH"

# split FILE: its blocks into $blocks/block-N (commands), .how (directive, line number), .says (printed)
split() {
    awk -v dir="$blocks" '
        /^```/ && inside { inside = 0; close(out); next }
        /^```sh *$/ { n++; inside = 1; out = sprintf("%s/block-%03d", dir, n); printf "" >out
                      printf "%s\n%d\n", how, NR >(out ".how"); close(out ".how"); how = ""; next }
        /^```text *$/ && n { inside = 1; out = sprintf("%s/block-%03d.says", dir, n); printf "" >out; next }
        inside { print >out; next }
        /^<!-- docs: .* -->$/ { how = $0; sub(/^<!-- docs: /, "", how); sub(/ -->$/, "", how); next }
        /[^ ]/ { how = "" }' "$1"
}

# quoted SAYS PRINTED: what a page would quote of what was printed, with its "..." in the same place
quoted() {
    sed -E '/ (judged|simulated|events) in |^simulated in |^sweep: [0-9]+ of /d' "$2" >"$tmp/steady"
    local at lines
    at=$(grep -nxF -m1 ... "$1" | cut -d: -f1)
    [ -n "$at" ] || { cat "$tmp/steady"; return; }
    lines=$(wc -l <"$1")
    head -n $((at - 1)) "$tmp/steady"
    echo ...
    tail -n $((lines - at)) "$tmp/steady"
}

# rewrite FILE: its quotations from $blocks/block-N.new, where there is one
rewrite() {
    awk -v dir="$blocks" '
        /^```sh *$/ { n++ }
        /^```text *$/ && n {
            print
            new = sprintf("%s/block-%03d.new", dir, n)
            if ((getline line <new) > 0) { do print line; while ((getline line <new) > 0); skip = 1 }
            next
        }
        /^```/ { skip = 0 }
        !skip' "$1" >"$tmp/page" && cp "$tmp/page" "$1"
}

run_page() { # FILE
    local file=$1 found=0 blocks block how name limit rc run
    blocks=$tmp/${file//\//-} && mkdir -p "$blocks/work"
    ln -s "$root/examples" "$root/tests" "$root/plots" "$blocks/work/"
    for run in run elastic; do # where the page does not make them itself
        grep -qE -- "--out $run( |\$)" "$file" || [ ! -e "$tmp/README.md/work/$run" ] || ln -sf "$tmp/README.md/work/$run" "$blocks/work/"
    done
    [ ! -e "$tmp/README.md/work/here.db" ] || [ -e "$blocks/work/here.db" ] || ln -s "$tmp/README.md/work/here.db" "$blocks/work/"
    split "$file"
    for block in "$blocks"/block-???; do
        [ -e "$block" ] || continue
        found=1
        how=$(sed -n 1p "$block.how")
        name="$file:$(sed -n 2p "$block.how"): $(grep -m1 -vE '^ *(#|$)' "$block" | cut -c1-60)"
        case $how in
        skip*) skip "$name" "${how#skip }"; continue ;;
        full) [ "$mode" = full ] || { skip "$name" "in make test-docs only"; continue; } ;;
        needs*) command -v "${how#needs }" >/dev/null || { skip "$name" "${how#needs } is not installed"; continue; } ;;
        ?*) [ "$mode" = full ] || sed -i "$how" "$block" ;;
        esac
        limit=$([ "$mode" = full ] && echo 1800 || echo 300)
        (cd "$blocks/work" && timeout -k 5 "$limit" bash -euo pipefail "$block") </dev/null >"$tmp/out" 2>&1
        rc=$?
        { echo "exit $rc"; cat "$block" "$tmp/out"; } | report $rc "$name"
        [ -e "$block.says" ] || continue
        quoted "$block.says" "$tmp/out" >"$block.new"
        [ "$mode" = write ] && continue
        diff "$block.says" "$block.new" >"$tmp/differs"
        report $? "$name: prints what the page says" <"$tmp/differs"
    done
    report "$((1 - found))" "$file has commands to run" <<<"no \`\`\`sh block in $file"
    [ "$mode" != write ] || rewrite "$file"
}

# README.md first, because other pages take its runs.
pages="README.md $(grep -l '^```sh' docs/*.md examples/*/README.md)"
[ "$mode" != reduced ] || pages="README.md docs/tutorial.md docs/commands.md"
for page in ${FILE:-$pages}; do
    run_page "$page"
done
[ -z "${KEEP:-}" ] || cp -rL "$tmp/docs-gallery.md/work/." "$KEEP/"
grep -nE '^    (elapse|make|build/bin/elapse)( |$)' README.md docs/*.md examples/*/README.md >"$tmp/indented"
report $(($? == 0)) "no page has commands in an indented block, which would not run here" <"$tmp/indented"
finish
