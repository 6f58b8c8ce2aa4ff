#!/bin/bash
# A clock that jumps by a day either way in the middle of a run (libfaketime): the run does all its steps with the bits of one
# whose clock does not, also over a restart, and no time that it records is negative or has the day in it.
# group: slow, seconds: 10
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin
fake=$(ls /usr/lib/*/faketime/libfaketimeMT.so.1 2>/dev/null | head -1)
[ -n "$fake" ] || { skip "a clock that jumps" "no libfaketime here (Debian's package faketime)"; finish; }
freezing_vit
long=(-n 2 --set train.epochs=120 --set train.checkpoint_every_steps=60 --set 'freeze.table=[0]' --set cache.policy=off)
train vit whole "${long[@]}"

jumps() { # NAME OFFSET ARGS...: the day comes when the first checkpoint is there, with ARGS when a rank has been killed then
    local out=$1 offset=$2 run
    shift 2
    echo '+0' >"$tmp/$out.time"
    LD_PRELOAD=$fake FAKETIME_TIMESTAMP_FILE=$tmp/$out.time FAKETIME_NO_CACHE=1 DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1 train vit "$out" "${long[@]}" "$@" &
    run=$!
    for _ in $(seq 1200); do compgen -G "$tmp/$out/checkpoint-*[0-9]" >/dev/null && break; sleep 0.02; done
    [ $# -eq 0 ] || kill -KILL "$(pgrep -f "^[^ ]*elapse-exec .*$tmp/$out " | sort -n | head -1)"
    echo "$offset" >"$tmp/$out.time"
    wait $run && same_run whole "$out"
}
times() { # NAME [HOURS]: of the metrics, the summary and run.db; a restart cannot tell a day that it waited from one that was set
    python3 - "$tmp/$1" "${2:-1}" <<'PY'
import json, sqlite3, sys
MOST = int(sys.argv[2]) * 3600 * 10**9
def look(value, way):
    if isinstance(value, dict):
        for key, one in value.items():
            look(one, way + "." + key)
    elif isinstance(value, list):
        for one in value:
            look(one, way)
    elif way.endswith("_ns") and value is not None and not 0 <= value < MOST:
        sys.exit(f"{way} is {value}")
for line in open(sys.argv[1] + "/metrics.jsonl"):
    look(json.loads(line), "metrics")
look(json.load(open(sys.argv[1] + "/summary.json")), "summary")
for start, step in sqlite3.connect(sys.argv[1] + "/run.db").execute("SELECT start_ns, step_ns FROM step"):
    look({"start_ns": start, "step_ns": step}, "run.db")
PY
}
for way in on back; do
    offset=+1d hours=25
    [ $way = on ] || { offset=-1d hours=1; }
    verify "a day $way in a run changes nothing" jumps "day-$way" $offset
    verify "and none of its times" times "day-$way"
    verify "a day $way and a lost rank: it restarts" jumps "again-$way" $offset --max-restarts 1
    verify "with times that can be" times "again-$way" $hours
    check "its report is made" "$elapse" report "$tmp/again-$way" -o "$tmp/page.html"
done
finish
