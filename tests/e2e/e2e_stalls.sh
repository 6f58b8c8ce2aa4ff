#!/bin/bash
# tests/e2e/e2e_stalls.sh - a rank that stands still: the run ends within the time that ELAPSE_STALL gives, says what each
# rank waits for, and goes on by --max-restarts with the same bits. A run that is stopped as a whole goes on by itself.
# alone: ends of runs are timed, group: slow, seconds: 65
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin
as_users_wait
freezing_vit
long=(-n 2 --set train.epochs=240 --set train.checkpoint_every_steps=60 --set 'freeze.table=[0]' --set cache.policy=off)
export ELAPSE_STALL=2s

# Three that wait for what never comes, beside the others.
# beside NAME COMMAND...: begins it; `ended NAME` has its status and output
beside() { { "${@:2}" >"$tmp/$1.said" 2>&1; echo $? >"$tmp/$1.rc"; } & }
ended() { until [ -s "$tmp/$1.rc" ]; do sleep 0.1; done; cat "$tmp/$1.said"; return "$(cat "$tmp/$1.rc")"; }
# A rank that dies while MPI starts. Open MPI 4.1 then waits for ever where files may not grow.
cat >"$tmp/leaves" <<'SH'
#!/bin/sh
: >"$ELAPSE_STARTS/begun-1" # the sign of a rank that is gone: nobody holds its lock
exec sleep 100
SH
chmod +x "$tmp/leaves"
beside dead env ELAPSE_MPIRUN="$tmp/leaves" timeout 40 "$elapse" train "$tmp/vit.json" -n 2 --out "$tmp/dead"
half() { # OUT ENVIRONMENT...: the other process never begins MPI
    env "${@:2}" timeout 300 mpirun.openmpi -n 1 "$(dirname "$elapse")/elapse-exec" train "$tmp/vit.json" --out "$tmp/$1" : -n 1 sleep 400
}
if command -v mpirun.openmpi >/dev/null; then
    beside alone half alone ELAPSE_STALL=2s
    mkdir "$tmp/signs"
    beside one-machine half one-machine -u ELAPSE_STALL ELAPSE_STARTS="$tmp/signs"
fi
train vit whole "${long[@]}"

# ranks OUT: the processes of its ranks, the first first
ranks() { pgrep -f "^[^ ]*elapse-exec .*$tmp/$1 " | sort -n; }
# begun OUT: waits until it has a checkpoint and so is in its steps
begun() { for _ in $(seq 300); do compgen -G "$tmp/$1/checkpoint-*[0-9]" >/dev/null && return; sleep 0.02; done; }
# stopped OUT RANK ARGS...: the run in which one rank is stopped
stopped() {
    local out=$1 rank=$2 run rc
    shift 2
    train vit "$out" "${long[@]}" "$@" &
    run=$!
    begun "$out"
    kill -STOP $(ranks "$out" | sed -n "$((rank + 1))p")
    began=$SECONDS
    wait $run
    rc=$?
    [ $((SECONDS - began)) -le 20 ] || { echo "ended $((SECONDS - began)) s later"; return 9; }
    return $rc
}
ends() {
    stopped "ends-$1" "$1"
    [ $? -eq 3 ] && says "ends-$1" "^elapse: no rank has made progress for [2-9].*: rank $1 does not run .*; rank $((1 - $1)) waits .*step [0-9]" ||
        { cat "$tmp/ends-$1.err"; false; }
}
for rank in 1 0; do
    verify "a run whose rank $rank stands still ends and says who waits for what" ends $rank
done
again() { stopped again 0 --max-restarts 1 && same_run whole again && says again "restart 1 of 1" || { cat "$tmp/again.err"; false; }; }
verify "with --max-restarts it goes on with the bits of a run that did not" again

outlived() { # another process takes the lock of the folder when the ranks are killed, as if one still lived
    local run
    train vit outlived "${long[@]}" --max-restarts 1 &
    run=$!
    begun outlived
    flock "$tmp/outlived" sleep 1 &
    sleep 0.1
    kill -KILL $(ranks outlived)
    wait $run && same_run whole outlived && says outlived 'restart 1 of 1' || { cat "$tmp/outlived.err"; false; }
}
verify "a restart waits for ranks that outlive their launcher" outlived

all_stopped() {
    train vit slept "${long[@]}" &
    begun slept
    kill -STOP $(ranks slept)
    sleep 4
    kill -CONT $(ranks slept)
    wait $! && same_run whole slept
}
verify "a run that is stopped as a whole goes on when it may" all_stopped

signalled() { # NAME ARGS...: SIGUSR2 to a rank, which nobody asked for
    local out=$1 run
    shift
    train vit "$out" "${long[@]}" "$@" &
    run=$!
    begun "$out"
    kill -USR2 $(ranks "$out" | head -1)
    wait $run && same_run whole "$out"
}
verify "a run that is sent SIGUSR2 does all its steps" signalled usr2
verify "also where a run is restarted, which takes no restart" signalled usr2-again --max-restarts 1
verify "and says so" says usr2-again 'continues with 2 ranks: a signal asked it to stop'

unusable() { OMPI_MCA_osc_sm_backing_directory="$tmp/nowhere" ELAPSE_STALL=2s train vit apart "${long[@]}" && same_run whole apart; }
verify "ranks that share no memory train without it, with the same bits" unusable
expect "a time that is none" 2 "ELAPSE_STALL.*'soon'" env ELAPSE_STALL=soon "$elapse" train "$tmp/vit.json" "${long[@]}" --out "$tmp/no"
expect "a time below a second" 2 'ELAPSE_STALL must be off or at least 1s' env ELAPSE_STALL=20ms "$elapse" train "$tmp/vit.json" "${long[@]}" --out "$tmp/no"
# A rank that is stopped again and again is named, and the next turn's plan gives it less, with the same bits.
cat >"$tmp/slow.json" <<'JOB'
{ "name": "slow",
  "model": {"family": "vit", "preset": "vit-tiny", "image": 32, "patch": 8, "hidden": 64, "heads": 4, "mlp": 128, "layers": 6, "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 512, "test_samples": 32},
  "train": {"epochs": 12, "batch": {"global": 64}, "reduction": "canonical", "eval_every_epochs": 0, "on_slow": "replan", "optimizer": {"kind": "sgd", "lr": 0.02}},
  "pipeline": {"num_stages": 2, "num_replicas": 1, "num_microbatches": 4, "schedule": "1f1b"} }
JOB
train slow even -n 2 --threads 1
slowed() {
    local run rank
    train slow slowed -n 2 --threads 1 &
    run=$!
    for _ in $(seq 300); do [ -s "$tmp/slowed/metrics.jsonl" ] && break; sleep 0.02; done
    rank=$(ranks slowed | tail -1)
    while ! grep -q slow: "$tmp/slowed.err" && kill -STOP "$rank" 2>/dev/null; do
        sleep 0.05
        kill -CONT "$rank"
        sleep 0.01
    done
    wait $run && says slowed 'rank 1 is slow: .* [2-9][.0-9]* times as long'
}
verify "a slow rank is named" slowed
verify "the next plan weighs it, with the same bits" same_run even slowed
verify "by another plan" grep -q "\"transitions\": *\[ *{" "$tmp/slowed.json"
dies() {
    ended dead >"$tmp/out"
    [ $? -eq 3 ] && grep -q 'a rank of train died while MPI started; its launcher did not end within 10 s' "$tmp/out" || { cat "$tmp/out"; return 1; }
}
verify "a rank that dies in MPI's start ends the run" dies
tight() {
    (ulimit -f 8; timeout 60 "$elapse" train "$tmp/vit.json" -n 2 --out "$tmp/tight" >"$tmp/tight.out" 2>&1)
    [ $? -eq 3 ] || { cat "$tmp/tight.out"; return 1; }
}
verify "so does a limit of file sizes that Open MPI cannot start under" tight
says_time() { ended "$1" >"$tmp/out"; grep -q "MPI has not started within $2" "$tmp/out" || { cat "$tmp/out"; return 1; }; }
if command -v mpirun.openmpi >/dev/null; then
    verify "a rank alone in MPI's start ends by itself" says_time alone '10.0 s'
    verify "on one machine within a minute" says_time one-machine '60.0 s'
fi
finish
