#!/bin/bash
# tests/e2e/e2e_profiles.sh - the store from outside: list, show, export, import, diff, rm; bad files change nothing.
. "$(dirname "$0")/lib.sh"
begin

# Looking makes no file: the shipped profiles are shown from memory.
expect "profiles: list shows what is shipped" 0 'rtx5000-paper +published' "$elapse" profiles list
check "profiles: list makes no store" test ! -e "$ELAPSE_DB"
"$elapse" profiles export rtx5000-paper -o "$tmp/paper.json"
sed -e 's/"rtx5000-paper"/"mine"/' "$tmp/paper.json" >"$tmp/mine.json"

# A bad file: one clear line, and no store at all.
sed -e '0,/"median_ns"/s//"median_us"/' "$tmp/mine.json" >"$tmp/units.json"
sed -e '0,/"median_ns":[^,]*/s//"median_ns": -1/' "$tmp/mine.json" >"$tmp/negative.json"
sed -e '0,/"median_ns":[^,]*/s//"median_ns": NaN/' "$tmp/mine.json" >"$tmp/nan.json"
head -c 900 "$tmp/mine.json" >"$tmp/cut.json"
expect "profiles: import refuses other units" 2 "no column 'median_us', nearest is 'median_ns'" \
    "$elapse" profiles import "$tmp/units.json"
expect "profiles: import refuses negative times" 2 'median_ns must be a number of ns' \
    "$elapse" profiles import "$tmp/negative.json"
expect "profiles: import refuses NaN" 2 'nan.json:[0-9]+:[0-9]+: a value is missing' \
    "$elapse" profiles import "$tmp/nan.json"
expect "profiles: import refuses a truncated file" 2 'the text ends too early' \
    "$elapse" profiles import "$tmp/cut.json"
"$elapse" profiles export rtx5000-paper --csv | sed -e 's/rtx5000-paper/mine/' -e '4{p}' >"$tmp/twice.csv"
expect "profiles: import refuses duplicate keys" 2 'is there twice' \
    "$elapse" profiles import "$tmp/twice.csv"
expect "profiles: import wants a file" 3 'cannot read' "$elapse" profiles import "$tmp/none.json"
check "profiles: bad imports make no store" test ! -e "$ELAPSE_DB"

# Good files, both forms.
check "profiles: import json" "$elapse" profiles import "$tmp/mine.json"
check "profiles: json round-trips" bash -c '"$1" profiles export mine | cmp - "$2"' _ "$elapse" "$tmp/mine.json"
"$elapse" profiles export mine --csv -o "$tmp/mine.csv"
check "profiles: import csv under a name" "$elapse" profiles import "$tmp/mine.csv" --name copy
expect "profiles: diff finds nothing" 0 '^rows that differ: 0 ' "$elapse" profiles diff mine copy
expect "profiles: diff in json" 0 '"changed":0,"only_first":0,"only_second":0' \
    "$elapse" profiles diff mine copy --json
expect "profiles: a taken name is refused" 2 "profile 'mine' is already in store" \
    "$elapse" profiles import "$tmp/mine.json"
for bad in units negative nan cut; do
    "$elapse" profiles import "$tmp/$bad.json" --replace >/dev/null 2>&1
done
check "profiles: bad imports change nothing" bash -c '"$1" profiles export mine | cmp - "$2"' _ "$elapse" "$tmp/mine.json"
sed -e '0,/"median_ns":[^,]*/s//"median_ns": 88380.5/' -e '0,/"p90_ns":[^,]*/s//"p90_ns": 88381/' \
    "$tmp/mine.json" >"$tmp/newer.json"
check "profiles: replace" "$elapse" profiles import "$tmp/newer.json" --replace
expect "profiles: diff shows the changed row" 0 '^rows that differ: 1 ' "$elapse" profiles diff mine copy
for bytes in 300 400; do
    printf '%s\n' table,name,source,device_kind profile,memory-$bytes,measured,cpu table,what,predicted_bytes,measured_bytes \
        memory_use,stash,500,$bytes >"$tmp/memory.csv"
    check "profiles: import $bytes bytes" "$elapse" profiles import "$tmp/memory.csv"
done
expect "profiles: diff shows both of what is no time" 0 '^ +now .*measured_bytes=400' \
    "$elapse" profiles diff memory-300 memory-400
expect "profiles: in json, too" 0 '"first":.*"measured_bytes":300.*"second":.*"measured_bytes":400' \
    "$elapse" profiles diff memory-300 memory-400 --json

expect "profiles: an unknown name has a nearest" 1 "no profile 'minx' in store .*nearest is 'mine'" \
    "$elapse" profiles show minx
expect "profiles: an option of another action" 2 'profiles list takes no --csv: it belongs to export' \
    "$elapse" profiles list --csv
check "profiles: rm" "$elapse" profiles rm copy
expect "profiles: what is removed is gone" 1 "no profile 'copy'" "$elapse" profiles show copy
expect "profiles: show" 0 'mlp erf hidden=768' "$elapse" profiles show mine

# Stores that are none.
echo "no database, but text that is long enough to be looked at as one by somebody" >"$tmp/text.db"
expect "profiles: a text file is refused" 2 'is not an SQLite file' \
    "$elapse" profiles list --db "$tmp/text.db"
expect "profiles: a missing store is named" 3 "cannot open store '.*/none.db'" \
    "$elapse" profiles list --db "$tmp/none.db"
head -c 6000 "$ELAPSE_DB" >"$tmp/cut.db"
expect "profiles: a truncated store is refused" 2 'is truncated: 6000 bytes of' \
    "$elapse" profiles list --db "$tmp/cut.db"
# The header of an SQLite file: user_version at byte 60, application_id at 68.
cp "$ELAPSE_DB" "$tmp/newer.db" && cp "$ELAPSE_DB" "$tmp/foreign.db"
printf '\0\0\0\143' | dd of="$tmp/newer.db" bs=1 seek=60 conv=notrunc status=none
printf '\1\2\3\4' | dd of="$tmp/foreign.db" bs=1 seek=68 conv=notrunc status=none
expect "profiles: a newer store is refused" 2 'has schema version 99, this program knows 1\.\.' \
    "$elapse" profiles import "$tmp/mine.json" --db "$tmp/newer.db"
expect "profiles: another program's file is refused" 2 'is an SQLite file of another program' \
    "$elapse" profiles import "$tmp/mine.json" --db "$tmp/foreign.db"
mkdir "$tmp/disk"
if unshare -rm mount -t tmpfs -o size=8k none "$tmp/disk" 2>/dev/null; then
    for kib in 4 8 16 64; do # where the first page, SQLite's index of its log, or the rows find no room
        expect "profiles: a full disk of $kib KiB is told" 3 'no room left on the disk of store' \
            unshare -rm bash -c 'mount -t tmpfs -o size=$0k none "$1" && exec "$2" profiles import "$3" --db "$1/full.db"' \
            $kib "$tmp/disk" "$elapse" "$tmp/mine.json"
    done
else
    skip "profiles: a full disk" "this machine lets nobody mount one"
fi
expect "profiles: a bad action is named" 2 'must be list\|show' "$elapse" profiles lost

# Names of others must not command the terminal: ESC, BEL, CR and U+009B.
cat >"$tmp/hostile.py" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
evil = "a\x1b]0;owned\x07\r\u009b2Jb"
for table, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
    for column in db.execute("PRAGMA table_info(%s)" % table).fetchall():
        if column[2] == "TEXT" and column[1] not in ("kind", "key", "pass", "name" if table != "run" else "") or column[1] == "host":
            try:
                db.execute("UPDATE %s SET %s = ?" % (table, column[1]), (evil,))
            except sqlite3.IntegrityError:
                pass
db.commit()
PY
"$elapse" sim examples/demo.json --record "$tmp/hostile.db" >/dev/null 2>&1
"$elapse" profiles import "$tmp/mine.json" --db "$tmp/hostile.db" >/dev/null 2>&1
python3 "$tmp/hostile.py" "$tmp/hostile.db"
harmless() { # whatever the status: no control character but newline and tab on either stream
    "$elapse" "$@" >"$tmp/shown" 2>&1
    [ -s "$tmp/shown" ] && ! LC_ALL=C grep -aq "$(printf '[\001-\010\013-\037\177]')\|$(printf '\302')[$(printf '\200')-$(printf '\237')]" "$tmp/shown"
}
verify "the hostile store is shown" grep -aq owned <("$elapse" runs list --db "$tmp/hostile.db" 2>&1)
for what in "runs list" "runs show" "profiles list" "profiles show mine"; do
    verify "names of a foreign store command no terminal: $what" harmless $what --db "$tmp/hostile.db"
done
printf '{"name":"x\\u001b[2J\\u0007","model":{"family":"uniform","layers":4,"name":"m\\u001b[31m"},"train":{"batch":{"global":8}},"cluster":"h100-1x4"}' >"$tmp/evil-job.json"
for what in plan sim "report -o $tmp/evil.html" "plot bubble --term dumb"; do
    verify "names of a job command no terminal: ${what%% *}" harmless $what "$tmp/evil-job.json"
done

# --- two processes that write one store at once ------------------------------------------------------
writes() { # WHO
    for n in 1 2 3 4 5 6; do
        "$elapse" profiles import "$tmp/mine.json" --name "writer-$1-$n" --db "$tmp/both.db" || return
    done
}
writes a >"$tmp/writer-a" 2>&1 &
writer=$!
verify "one of two writers of a store" writes b
verify "the other" wait $writer
check "the store has what both wrote" test "$("$elapse" profiles list --db "$tmp/both.db" | grep -c 'writer-[ab]-[1-6]')" = 12

expect "runs: none yet" 1 'no runs in store' "$elapse" runs show
expect "runs: list in json" 0 '"runs":\[\]' "$elapse" runs list --json
expect "runs: RUN must be a number" 2 'RUN' "$elapse" runs show x
expect "profiles: no store has an empty name" 3 "cannot open store ''" "$elapse" profiles list --db ""
finish
