#!/bin/bash
# tests/e2e/e2e_schedule.sh - `elapse schedule` from outside: pictures, JSON, CSV there and back, verdicts
# and exit codes.
. "$(dirname "$0")/lib.sh"
begin

# --- print ------------------------------------------------------------------------------------------
expect "the picture of 1f1b" 0 '^rank 1     \. 1F0 1B0   - 1F1 1B1   - 1F2 1B2   -   \.   \.$' \
    "$elapse" schedule --kind 1f1b --stages 2 --microbatches 3
expect "the form of pytorch" 0 '^1F0,1B0,1F1,1B1,1F2,1B2$' \
    "$elapse" schedule --kind 1f1b --stages 2 --microbatches 3 --csv
expect "json has the ops" 0 '"ranks":\[\[\{"op":"F","stage":0,"microbatch":0\},\{"op":"B"' \
    "$elapse" schedule --kind gpipe --stages 1 --microbatches 1 --json
expect "json has peak_live" 0 '"peak_live":\[4,3,2,1\]' \
    "$elapse" schedule --kind 1f1b --stages 4 --microbatches 8 --json
expect "a long schedule is not drawn" 0 'too wide' \
    "$elapse" schedule --kind 1f1b --stages 4 --microbatches 800

# --- there and back ---------------------------------------------------------------------------------
for kind in gpipe 1f1b interleaved zb-h1 zb-h2 zb-v dualpipe-v eager-1f1b breadth-first v-half v-min looped-bfs auto; do
    "$elapse" schedule --kind $kind --stages 3 --microbatches 6 --csv >"$tmp/$kind.csv"
    expect "check accepts $kind" 0 '"ok":true' "$elapse" schedule --check "$tmp/$kind.csv" --json
    sed '1s/,[^,]*$//' "$tmp/$kind.csv" >"$tmp/short.csv"
    expect "check rejects $kind without its last op" 1 'rank 0 has no' \
        "$elapse" schedule --check "$tmp/short.csv"
done
expect "dualpipe is named after its successor" 2 "unknown schedule 'dualpipe', did you mean 'dualpipe-v'" \
    "$elapse" schedule --kind dualpipe --stages 4 --microbatches 8
printf '0F0,0B0\n1B0,1F0\n' >"$tmp/wrong.csv"
expect "the reason names the ops" 1 'rank 1: 1B0 before 1F0' \
    "$elapse" schedule --check "$tmp/wrong.csv"
"$elapse" schedule --check "$tmp/wrong.csv" --json >"$tmp/wrong.json" 2>/dev/null
check "and the json has it too" grep -q '"ok":false,"reason":"rank 1: 1B0 before 1F0"' "$tmp/wrong.json"
printf '0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n' >"$tmp/order.csv"
expect "another order of forwards is fine" 0 '^ok' "$elapse" schedule --check "$tmp/order.csv"
expect "but not with one buffer" 1 'deadlock: rank 0 stands at 0F1 for 1F1 of rank 1' \
    "$elapse" schedule --check "$tmp/order.csv" --buffers 1
expect "--buffers without --check" 2 '^elapse: --buffers goes with --check$' \
    "$elapse" schedule --kind 1f1b --stages 2 --microbatches 2 --buffers 1

# --- bad input --------------------------------------------------------------------------------------
printf '0F0,0B\n' >"$tmp/malformed.csv"
head -c 4096 /dev/zero >"$tmp/zeros.csv"
: >"$tmp/empty.csv"
printf '0F2000000000,0B0\n' >"$tmp/absurd.csv"
for file in malformed zeros empty absurd; do
    expect "$file csv is named" 2 "$file.csv: |$file.csv' is not text" "$elapse" schedule --check "$tmp/$file.csv"
done
printf '0F0,0B0\n\n' >"$tmp/rows.csv"
expect "a row without a stage" 2 '2 rows, but stages 0\.\.0' "$elapse" schedule --check "$tmp/rows.csv"
expect "missing file" 3 "cannot read '.*none.csv'" "$elapse" schedule --check "$tmp/none.csv"
expect "a folder" 3 'cannot read' "$elapse" schedule --check "$tmp"
expect "unknown kind" 2 "unknown schedule 'gpip'" \
    "$elapse" schedule --kind gpip --stages 2 --microbatches 3
expect "no kind" 2 '--kind is missing' "$elapse" schedule --stages 2 --microbatches 3
expect "a billion stages" 2 'stages must be 1\.\.65535' \
    "$elapse" schedule --kind 1f1b --stages 1000000000 --microbatches 3
expect "too many ops" 2 'more than 268435456 ops' \
    "$elapse" schedule --kind 1f1b --stages 60000 --microbatches 60000
expect "no stages" 2 'stages' "$elapse" schedule --kind 1f1b --stages 0 --microbatches 3
expect "dualpipe-v wants 2K" 1 'needs at least 8 microbatches' \
    "$elapse" schedule --kind dualpipe-v --stages 4 --microbatches 7
expect "custom cannot be printed" 2 "no generator" \
    "$elapse" schedule --kind custom --stages 4 --microbatches 7
finish
