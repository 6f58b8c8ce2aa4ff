#!/bin/bash
# tests/e2e/chaos.sh - disturb runs at random and see them end, go on, and come to the same weights.
#
#   tests/e2e/chaos.sh               50 kills, stopped processes, full disks, locked stores
#   CHAOS_SECONDS=60             as many as fit into that time, kinds in turn
#   CHAOS_KINDS=PATTERN          of the kinds below only those that match
#   CHAOS_JOBS=PATTERN           of the jobs below only those that match
#   CHAOS_COUNT=N                as many as that, however long they take
#   CHAOS_SEED=N                 (1) another draw of places, ranks and moments
#
# The jobs take turns: one freezes and thaws, changes the length of its pipeline, fills and upgrades a cache with a
# spill; the others are a Llama whose pipeline changes, GPT-2 with adapters and a cache, packed documents in bf16, op
# lists of the search, and ViT with adapters and copies in memory. Each saves every third step. A rank, the launcher (mpirun) or the front program (elapse) is killed (SIGKILL) or
# stopped and continued, at a place that tests/e2e/chaos_strike.c knows: among messages of a pass, sums over ranks,
# changes of plan, writes to the cache, checkpoints, or at any moment. Half of the runs have --max-restarts and
# go on by themselves; the others by the line that they print. Where the front program itself is killed,
# nobody prints one; --resume goes on all the same. A run that is killed before its first checkpoint begins
# anew.
#
# Each run must have ended CHAOS_LIMIT_S (10) seconds after the blow, or say that it goes on; at the end its
# weights must be, to the bit, those of a run that nobody disturbed. Prints a table. Exit 1 on any failure.
# The files of a failed run are kept, and their place is printed.
. "$(dirname "$0")/lib.sh"
begin
limit_s=${CHAOS_LIMIT_S:-10} budget_s=${CHAOS_SECONDS:-0}
RANDOM=${CHAOS_SEED:-1}
exe=$(dirname "$elapse")/elapse-exec
strike_lib=$(dirname "$elapse")/../tests/chaos_strike.so
for needed in "$elapse" "$exe" "$strike_lib"; do
    [ -e "$needed" ] || { skip "chaos" "no $needed here"; finish; }
done
launcher=${ELAPSE_MPIRUN:-mpirun}
export ELAPSE_MPIRUN=$launcher
# Bash reports each process that a signal ends.
exec 2> >(grep -v ': line [0-9]*: *[0-9]* Killed ' >&2)
now_ms() { echo $(($(date +%s%N) / 1000000)); }

train='"clip_norm": 1.0, "reduction": "canonical", "checkpoint_every_steps": 3, "seed": 1'
momentum='"optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9}' adam='"optimizer": {"kind": "adamw", "lr": 0.003}'
vit='{"preset": "vit-tiny", "image": 16, "patch": 8, "hidden": 32, "heads": 2, "mlp": 64, "layers": 4, "classes": 10}'
llama='{"preset": "llama3-8b", "layers": 4, "hidden": 32, "heads": 2, "kv_heads": 1, "mlp": 64, "seq": 16, "vocab": 256}'
gpt2='{"preset": "gpt2", "layers": 4, "hidden": 32, "heads": 2, "seq": 16, "vocab": 256}'
samples='{"kind": "synthetic", "train_samples": 256, "test_samples": 16}'
freeze='"freeze": {"policy": "table", "table": [0, 1, 2, 2, 3, 1]}'
job() { # NAME MODEL DATA TRAIN PIPELINE MORE
    jobs+=("$1")
    echo "{\"name\": \"$1\", \"model\": $2, \"data\": $3, \"train\": {\"epochs\": 6, \"batch\": {\"global\": 32}, $train, $4},
        \"pipeline\": {\"num_microbatches\": 8, $5}, $6}" >"$tmp/$1.json"
}
jobs=()
job cache "$vit" "$samples" "\"dropout\": 0.1, $momentum" '"schedule": "1f1b"' "$freeze,
    \"elastic\": {\"stages\": [2, 2, 1, 2, 2, 1]}, \"cache\": {\"policy\": \"on\", \"limit_bytes\": \"64KB\", \"spill_dir\": \"spill\"}"
job llama "$llama" "$samples" "$adam" '"schedule": "zb-h1"' "$freeze, \"elastic\": {\"stages\": [2, 1, 2, 2, 1, 2]}"
job adapters "$gpt2" "$samples" "$adam, \"lora\": {\"rank\": 3}" '"schedule": "1f1b"' "$freeze, \"cache\": {\"policy\": \"on\"}"
job packed "$llama" "{\"kind\": \"text\", \"path\": \"$tmp/documents\"}" "$adam, \"dtype\": \"bf16\"" '"num_stages": 2, "schedule": "1f1b"' '"elastic": {}'
job lists "$vit" "$samples" "$momentum" '"num_stages": 2, "schedule": "search"' '"cost": {"source": "roofline"}'
job copies "$vit" "$samples" "$adam, \"lora\": {\"rank\": 3}, \"checkpoint_memory_every_steps\": 1" '"schedule": "1f1b"' "$freeze"
mkdir "$tmp/spill" "$tmp/documents"
for n in $(seq 160); do printf '{"text": "%s"}\n' "$(seq -s ' ' $((n % 11 + 1)))"; done >"$tmp/documents/train.jsonl"
head -16 "$tmp/documents/train.jsonl" >"$tmp/documents/test.jsonl"
[ -z "${CHAOS_JOBS:-}" ] || mapfile -t jobs < <(printf '%s\n' "${jobs[@]}" | grep -E "$CHAOS_JOBS")
[ ${#jobs[@]} -gt 0 ] || { echo "chaos: no job matches '$CHAOS_JOBS'"; exit 2; }

digest() { grep -o '"weights_sha256":[^,]*' "$1/summary.json" 2>/dev/null | tr -d ' \t'; }
elapse_train() { "$elapse" train "$@" --json </dev/null; }

# --- the undisturbed runs -------------------------------------------------------------------------
declare -A want=() whole_ms=()
whole() { # JOB: once, when it is first drawn
    local began
    [ -z "${want[$1]:-}" ] || return 0
    mkdir "$tmp/count-$1"
    began=$(now_ms)
    LD_PRELOAD=$strike_lib CHAOS_DIR=$tmp/count-$1 elapse_train "$tmp/$1.json" --out "$tmp/whole-$1" -n 2 >/dev/null 2>"$tmp/whole.err"
    whole_ms[$1]=$(($(now_ms) - began))
    want[$1]=$(digest "$tmp/whole-$1")
    if [ -z "${want[$1]}" ] || [ ! -s "$tmp/count-$1/counts.1" ]; then
        cat "$tmp/whole.err"
        echo "chaos: the undisturbed run of '$1' failed"
        exit 1
    fi
}
calls() { awk -v p="$2" '$1 == p {print $2}' "$tmp/count-$job/counts.$1"; } # RANK PLACE

# --- one disturbance ------------------------------------------------------------------------------
declare -A count=() slowest=() resumed=() anew=() missed=() same=()
order=() failures=0 number=0
note() { # NAME ENDED_MS HOW SAME: into the table
    [ -n "${count[$1]:-}" ] || { order+=("$1"); count[$1]=0 slowest[$1]=0 resumed[$1]=0 anew[$1]=0 missed[$1]=0 same[$1]=0; }
    count[$1]=$((${count[$1]} + 1))
    [ "$2" -le "${slowest[$1]}" ] || slowest[$1]=$2
    case $3 in
    resumed) resumed[$1]=$((${resumed[$1]} + 1)) ;;
    anew) anew[$1]=$((${anew[$1]} + 1)) ;;
    missed) missed[$1]=$((${missed[$1]} + 1)) ;;
    esac
    same[$1]=$((${same[$1]} + $4))
}
failed() { # NAME WHY
    failures=$((failures + 1))
    keep=1
    echo "not ok - $1, run $number: $2"
    sed 's/^/# /' "$dir/err" "$dir/again.err" 2>/dev/null | tail -20
}
struck() { [ -s "$dir/struck" ]; }
ranks_alive() {
    local at
    for at in "$dir"/pid.*; do
        kill -0 "${at##*.}" 2>/dev/null && ! grep -q '^State:.Z' "/proc/${at##*.}/status" 2>/dev/null && return
    done
    false
}
checkpoints() { ls "$dir"/out/checkpoint-*/manifest.json 2>/dev/null | grep -v '\.tmp'; }
has_checkpoint() { [ -n "$(checkpoints)" ]; }

run_id() { grep -o '[0-9a-f]\{32\}' "$dir/out/run.json" | head -1; }
# Whether metrics.jsonl and run.db have each step of the undisturbed run, with its loss.
all_rows() {
    python3 - "$dir/out" "$tmp/whole-$job" <<'PY'
import json, sqlite3, sys
def losses(folder):
    rows = map(json.loads, open(folder + "/metrics.jsonl"))
    lines = {row["step"]: row["loss"] for row in rows if "loss" in row and "step" in row and "event" not in row}
    with sqlite3.connect(folder + "/run.db") as db:
        return lines, {n for n, in db.execute("SELECT DISTINCT step FROM step")}
(lines, stored), (whole, whole_stored) = map(losses, sys.argv[1:])
if lines != whole or stored != whole_stored or len(whole) != len(whole_stored):
    print("#", sorted(set(whole.items()) ^ set(lines.items()))[:4], sorted(whole_stored ^ stored)[:4], len(whole), len(whole_stored))
    sys.exit(1)
PY
}

# start ARGS: a run in the background, $front; its folder is $dir/out.
start() {
    elapse_run=("$tmp/$job.json" --out "$dir/out" -n 2 "$@")
    LD_PRELOAD=$strike_lib CHAOS_DIR=$dir "$elapse" train "${elapse_run[@]}" --json </dev/null >"$dir/json" 2>"$dir/err" &
    front=$!
}

# settle NAME: until the run that was struck has ended or says that it goes on; sets ended_ms.
settle() {
    local began end
    began=$(($(cut -d' ' -f2 "$dir/struck") / 1000000))
    end=$((began + limit_s * 1000))
    while :; do
        ended_ms=$(($(now_ms) - began))
        if ! kill -0 "$front" 2>/dev/null && ! ranks_alive; then return; fi
        if grep -q '; restart [0-9]* of ' "$dir/err"; then return; fi
        if [ "$(now_ms)" -gt "$end" ]; then
            failed "$1" "has not ended after $limit_s s: $(cat "$dir"/pid.* /dev/null; ps -o pid=,stat=,args= -p "$front")"
            kill -KILL "$front" 2>/dev/null
            return
        fi
        sleep 0.02
    done
}

# go_on NAME: what is left of a run goes on by itself, by its own line, or anew; then its bits are compared.
go_on() {
    local how=none line rc
    wait "$front"
    rc=$?
    if [ $rc -eq 0 ]; then
        how=resumed
        struck || how=missed # it had ended before its moment
    elif has_checkpoint; then
        line=$(sed -n 's/^hint: .*continue with: \(elapse train --resume .*\)$/\1/p' "$dir/err" | tail -1)
        # Without its launcher a rank may still finish the first checkpoint when the line has been printed.
        if [ -z "$line" ] && [ $rc -ne 137 ] && [ "$(checkpoints | wc -l)" -gt 1 ]; then
            failed "$1" "exit $rc, a checkpoint, and no line that goes on"
        fi
        [[ $line = *" -n "* ]] || line="elapse train --resume $dir/out -n 2"
        # shellcheck disable=SC2086
        "$elapse" ${line#elapse } --json </dev/null >"$dir/json" 2>"$dir/again.err" && how=resumed
    else
        rm -rf "$dir/out"
        elapse_train "$tmp/$job.json" --out "$dir/out" -n 2 >"$dir/json" 2>"$dir/again.err" && how=anew
    fi
    local got=0
    [ "$(digest "$dir/out")" = "${want[$job]}" ] && got=1
    [ $got -eq 1 ] || failed "$1" "other weights, or none ($how)"
    case $1 in kill* | stop*) all_rows || failed "$1" "rows of steps are missing" ;; esac
    [ $how = none ] || ! ls -d "/dev/shm/elapse-run-$(run_id)" >/dev/null 2>&1 || failed "$1" "copies stay in memory"
    note "$1" "$ended_ms" $how $got
}

fresh() { number=$((number + 1)) dir=$tmp/run-$number keep=0 ended_ms=0; mkdir "$dir"; }
over() { [ $keep -eq 1 ] || rm -rf "$dir"; }

# pick PLACE: the turn's job, or the next one that has calls of that place.
pick() {
    local i
    for i in "${!jobs[@]}"; do
        job=${jobs[(turn + turn / ${#kinds[@]} + i) % ${#jobs[@]}]}
        whole "$job"
        [ "$1" != time ] || return 0
        [ "$(($(calls 0 "$1") + $(calls 1 "$1")))" -eq 0 ] || return 0
    done
    echo "chaos: no undisturbed run has a call of $1"
    exit 1
}

# kill_one PLACE WHO: at a random call of a random rank.
kill_one() {
    local rank=$((RANDOM % 2)) n args=()
    pick "$1"
    fresh
    if [ "$1" = time ]; then
        n=$(((RANDOM * 32768 + RANDOM) % (${whole_ms[$job]} * 700) + 1))
    else
        n=$(calls $rank "$1")
        [ "$n" -gt 0 ] || { rank=$((1 - rank)); n=$(calls $rank "$1"); }
        n=$((RANDOM % n + 1))
    fi
    [ $((number % 2)) -eq 0 ] || args=(--max-restarts 2)
    CHAOS_AT=$1@$n CHAOS_RANK=$rank CHAOS_WHO=$2 start "${args[@]}"
    until struck || ! kill -0 "$front" 2>/dev/null; do sleep 0.02; done
    ! struck || settle "kill $2: $1"
    go_on "kill $2: $1"
    over
}

# stop_one WHO: stopped for a second, then continued; the run must not notice.
stop_one() {
    local rank=$((RANDOM % 2)) n
    pick message
    fresh
    n=$((RANDOM % $(calls $rank message) + 1))
    CHAOS_AT=message@$n CHAOS_RANK=$rank CHAOS_WHO=$1 CHAOS_SIGNAL=$(kill -l STOP) start
    until struck || ! kill -0 "$front" 2>/dev/null; do sleep 0.02; done
    sleep 1
    ! struck || kill -CONT "$(cut -d' ' -f1 "$dir/struck")"
    go_on "stop $1 for 1 s"
    over
}

# fail_from PLACE ERRNO: from a random call of a random rank on, calls of a place fail, in this start of the run. It
# goes on without what has failed, or ends with one error; no restart, which would meet the same fault.
fail_from() {
    local rank=$((RANDOM % 2)) n name="$2: $1" code
    case $2 in EIO) code=5 ;; ENOSPC) code=28 ;; EROFS) code=30 ;; esac
    pick "$1"
    fresh
    n=$(calls $rank "$1")
    [ "$n" -gt 0 ] || { rank=$((1 - rank)); n=$(calls $rank "$1"); }
    CHAOS_AT=$1@$((RANDOM % n + 1)) CHAOS_RANK=$rank CHAOS_ERRNO=$code start
    timeout $((6 * limit_s)) tail --pid=$front -f /dev/null || failed "$name" "has not ended after $((6 * limit_s)) s"
    if ! wait "$front" && ! grep -q '^elapse' "$dir/err"; then failed "$name" "no error"; fi
    go_on "$name"
    over
}

# small_files: no file may grow beyond a random size, as by ulimit -f, in this start of the run.
small_files() {
    local name="limit of file sizes"
    pick time
    fresh
    ulimit -S -f $((2 ** (RANDOM % 10 + 2) + RANDOM % 8))
    ELAPSE_STALL=${limit_s}s start
    ulimit -S -f unlimited
    timeout $((6 * limit_s)) tail --pid=$front -f /dev/null || { failed "$name" "has not ended after $((6 * limit_s)) s"; kill -KILL "$front"; }
    if ! wait "$front" && ! grep -q '^elapse' "$dir/err"; then failed "$name" "no error"; fi
    echo "$front $(date +%s%N)" >"$dir/struck"
    go_on "$name"
    over
}

# full_disk: the run's folder is on a small disk, which something else fills.
full_disk() {
    local name="full disk" at
    pick time
    fresh
    mkdir "$dir/out"
    if ! mount -t tmpfs -o size=128m tmpfs "$dir/out" 2>/dev/null; then
        [ -n "${no_mount:-}" ] || skip "$name" "a small disk wants root and mount"
        no_mount=1
        over
        return
    fi
    start
    at=$((RANDOM % 10 + 3))
    until [ "$(wc -l 2>/dev/null <"$dir/out/metrics.jsonl")" -ge $at ] 2>/dev/null || ! kill -0 "$front" 2>/dev/null; do sleep 0.02; done
    head -c 128M /dev/zero >"$dir/out/.filler" 2>/dev/null
    echo "$front $(date +%s%N)" >"$dir/struck"
    wait_for_end "$name"
    rm -f "$dir/out/.filler"
    go_on "$name"
    umount "$dir/out" 2>/dev/null || umount -l "$dir/out"
    over
}
# The disk fills now; a run notices at its next write.
wait_for_end() { settle "$1"; }

# locked_store: another program holds run.db from some moment on. Nothing may come of it.
locked_store() {
    local name="locked store" holder
    pick time
    fresh
    start
    until [ -s "$dir/out/metrics.jsonl" ] || ! kill -0 "$front" 2>/dev/null; do sleep 0.02; done
    python3 - "$dir/out/run.db" <<'PY' &
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
db.execute("BEGIN IMMEDIATE")
time.sleep(300)
PY
    holder=$!
    echo "$holder $(date +%s%N)" >"$dir/struck"
    wait "$front" || failed "$name" "the run ended"
    kill "$holder"
    wait "$holder" 2>/dev/null
    go_on "$name"
    over
}

# --- the rounds -----------------------------------------------------------------------------------
# 50 kills, of which 10 of each rank's place but the rarer ones; the others beside them.
kinds=("kill_one time rank" "kill_one sync rank" "kill_one change rank" "kill_one message rank" "kill_one cache rank"
    "kill_one sum rank" "kill_one rename rank" "kill_one time launcher" "kill_one time front" "kill_one sync launcher"
    "stop_one rank" "full_disk" "locked_store" "fail_from rename EIO" "fail_from sync ENOSPC" "fail_from cache EIO"
    "fail_from rename EROFS" "fail_from sync EIO" "fail_from cache ENOSPC" "fail_from rename ENOSPC" "fail_from open EROFS"
    "fail_from open ENOSPC" "fail_from open EIO" "fail_from truncate ENOSPC" "fail_from truncate EROFS" "fail_from truncate EIO"
    "fail_from file EROFS" "fail_from file ENOSPC" "fail_from file EIO" "small_files")
[ -z "${CHAOS_KINDS:-}" ] || mapfile -t kinds < <(printf '%s\n' "${kinds[@]}" | grep -E "$CHAOS_KINDS")
[ ${#kinds[@]} -gt 0 ] || { echo "chaos: no kind matches '$CHAOS_KINDS'"; exit 2; }
kills=0 turn=0 end_ms=$(($(now_ms) + budget_s * 1000)) longest_ms=0
while :; do
    kind=${kinds[turn % ${#kinds[@]}]}
    case $kind in stop_one*) [ $((turn / ${#kinds[@]} % 3)) -eq 0 ] || kind="stop_one launcher" ;; esac
    turn=$((turn + 1))
    began=$(now_ms)
    $kind
    took=$(($(now_ms) - began))
    [ $took -le $longest_ms ] || longest_ms=$took
    case $kind in kill_one*) kills=$((kills + 1)) ;; esac
    if [ "$budget_s" -gt 0 ]; then
        [ $(($(now_ms) + longest_ms)) -lt $end_ms ] || break
    elif [ "${CHAOS_COUNT:-0}" -gt 0 ]; then
        [ $number -lt "$CHAOS_COUNT" ] || break
    elif [ $kills -ge 50 ]; then
        break
    fi
done

printf '%-28s %5s %13s %8s %5s %7s %10s\n' disturbance count 'ended within' resumed anew missed 'equal bits'
for name in "${order[@]}"; do
    ended=-
    [ "${slowest[$name]}" -eq 0 ] || ended=$(awk "BEGIN {printf \"%.1f s\", ${slowest[$name]} / 1000}")
    printf '%-28s %5d %13s %8d %5d %7d %10d\n' "$name" "${count[$name]}" "$ended" "${resumed[$name]}" "${anew[$name]}" "${missed[$name]}" "${same[$name]}"
done
printf '%d disturbances, %d kills, %d failed\n' $number $kills $failures
if [ $failures -eq 0 ]; then echo "ok - $number disturbed runs end with the weights of an undisturbed one"; fi
[ $failures -eq 0 ] || { trap - EXIT; echo "kept: $tmp"; exit 1; }
