#!/bin/bash
# tests/docs.sh - run the commands of README.md: every block fenced as sh, in order, in one scratch
# folder where `elapse` is in PATH and the folders of the project are at hand.
#
#   tests/docs.sh          at reduced size (make test)
#   tests/docs.sh full     as they stand (make test-docs)
#
# A comment on the line before a block steers it:
#   <!-- docs: s/--epochs 10/--epochs 1/ -->   this sed script makes the reduced form
#   <!-- docs: full -->                        runs in full only
#   <!-- docs: skip WHY -->                    never runs here
# One TAP line a block. FILE=other.md looks at another text.
# seconds: 30
. "$(dirname "$0")/lib.sh"
begin
mode=${1:-reduced}
file=${FILE:-README.md}
root=$PWD
export PATH="$(dirname "$elapse"):$PATH"
mkdir "$tmp/work"
ln -s "$root/examples" "$root/tests" "$root/plots" "$tmp/work/"

# Blocks into $tmp/block-N (commands) and $tmp/block-N.how (directive, line number).
awk -v dir="$tmp" '
    /^```/ && inside { inside = 0; close(out); next }
    /^```sh *$/ { n++; inside = 1; out = sprintf("%s/block-%03d", dir, n); printf "" >out
                  printf "%s\n%d\n", how, NR >(out ".how"); close(out ".how"); how = ""; next }
    inside { print >out; next }
    /^<!-- docs: .* -->$/ { how = $0; sub(/^<!-- docs: /, "", how); sub(/ -->$/, "", how); next }
    /[^ ]/ { how = "" }' "$file"

found=0
for block in "$tmp"/block-???; do
    [ -e "$block" ] || continue
    found=1
    how=$(sed -n 1p "$block.how")
    name="$file:$(sed -n 2p "$block.how"): $(grep -m1 -vE '^ *(#|$)' "$block" | cut -c1-60)"
    case $how in
    skip*) skip "$name" "${how#skip }"; continue ;;
    full) [ "$mode" = full ] || { skip "$name" "in make test-docs only"; continue; } ;;
    ?*) [ "$mode" = full ] || sed -i "$how" "$block" ;;
    esac
    limit=$([ "$mode" = full ] && echo 1800 || echo 300)
    (cd "$tmp/work" && timeout -k 5 "$limit" bash -euo pipefail "$block") </dev/null >"$tmp/out" 2>&1
    rc=$?
    { echo "exit $rc"; cat "$block" "$tmp/out"; } | report $rc "$name"
done
report "$((1 - found))" "$file has commands to run" <<<"no \`\`\`sh block in $file"
finish
