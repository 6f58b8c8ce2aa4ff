#!/bin/bash
# Training end to end: same bits at any K, resume, signals, evaluation, export, bad input.
# seconds: 25
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin

cat >"$tmp/job.json" <<'JOB'
{ "name": "small",
  "model": {"family": "vit", "preset": "vit-tiny", "image": 16, "patch": 8, "hidden": 32, "heads": 2,
            "mlp": 64, "layers": 4, "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 200, "test_samples": 50},
  "train": {"epochs": 2, "batch": {"per_pipeline": 32}, "clip_norm": 1.0, "checkpoint_every_steps": 5,
            "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
            "lr_schedule": {"kind": "cosine", "warmup_steps": 3}, "seed": 1},
  "pipeline": {"num_stages": "auto", "num_replicas": 1, "num_microbatches": 4, "schedule": "1f1b"} }
JOB

digest() { value "$1" weights_sha256; }

train job k1 -n 1
check "a job trains on one rank" test -s "$tmp/k1/summary.json"
for kind in zb-h1 gpipe 1f1b; do
    train job "k2-$kind" -n 2 --set "pipeline.schedule=$kind"
    verify "K=1 and K=2 give the same losses and weights ($kind)" same_run k1 "k2-$kind"
done
searched=(--set pipeline.schedule=search --set cost.source=roofline)
order() { sed -n 's/.*"order":[^"]*"\([^"]*\)".*/\1/p' "$tmp/k2-search/summary.json"; }
train job k2-search -n 2 "${searched[@]}" --steps 6
first=$(order)
train job k2-search -n 2 "${searched[@]}" --resume "$tmp/k2-search"
verify "K=2 with op lists of its own gives the same losses and weights" same_run k1 k2-search
verify "a resumed run has the same lists" test -n "$first" -a "$first" = "$(order)"
train job k3 -n 3
verify "K=3 on more ranks than cores gives the same losses and weights" same_run k1 k3
train job r2k1 -n 2 --set pipeline.num_replicas=2
train job r2k2 -n 4 --set pipeline.num_replicas=2
verify "with two replicas, K=1 and K=2 give the same losses and weights" same_run r2k1 r2k2
OMPI_MCA_osc_sm_backing_directory=$tmp/none TEST_TIMEOUT=30 train job r2none -n 2 --set pipeline.num_replicas=2
verify "and if rank 0 cannot make shared memory, all ranks send messages, with the same bits" same_run r2k1 r2none
normed() { # also where nothing clips
    train job unclipped -n 2 --set train.clip_norm=0 --set train.max_steps=2 &&
        [ "$(grep -c '"grad_norm":[0-9]' "$tmp/unclipped/metrics.jsonl")" -eq 2 ]
}
verify "metrics.jsonl has the gradient's norm without clipping too" normed
lines() { [ "$(wc -l <"$tmp/k1/metrics.jsonl")" -eq 14 ] && ! grep -q '^$' "$tmp/k1/metrics.jsonl"; }
verify "metrics.jsonl has a line per step" lines

train job part -n 2 --steps 6
train job part -n 1 --resume "$tmp/part"
verify "a run resumed in mid-epoch at another K is the same run" same_run k1 part
one_history() { # numbers from its very first step, and the time of both parts
    for key in initial_loss initial_accuracy final_loss eval_accuracy steps total_steps; do
        [ "$(value part $key)" = "$(value k1 $key)" ] || return 1
    done
    python3 - "$tmp/part" <<'PY'
import json, sys
steps = [json.loads(line)["step_ns"] for line in open(sys.argv[1] + "/metrics.jsonl") if "step_ns" in line]
assert json.load(open(sys.argv[1] + "/summary.json"))["train_ns"] >= sum(steps)
PY
}
verify "a resumed run counts from its first step" one_history

# Layers freeze, two ranks become two pipelines, and later epochs have half the steps.
counted() {
    "$elapse" train "$tmp/job.json" -n 2 --out "$tmp/fewer" --set train.epochs=3 --set train.max_steps=400 \
        --set freeze.policy=table --set 'freeze.table=[0,4,4]' --set pipeline.num_stages=2 >"$tmp/fewer.out" 2>"$tmp/fewer.err" &&
        grep -q "^steps  *15 of 15, 3 of 3 epochs$" "$tmp/fewer.out" && [ "$(value fewer total_steps)" = 15 ] &&
        says fewer "note: train.max_steps is 400, but train.epochs=3 ends the run after 15 steps"
}
verify "a finished run has done all its steps, and says what ended it" counted

# Stopped by a signal: the front door turns SIGTERM into 'checkpoint and stop'.
train job slow -n 2 --set train.epochs=2000 --set train.lr_schedule.kind=constant &
for _ in $(seq 200); do
    [ -s "$tmp/slow/metrics.jsonl" ] && [ "$(wc -l <"$tmp/slow/metrics.jsonl")" -gt 12 ] && break
    sleep 0.05
done
pkill -TERM -P $! 2>/dev/null
wait $!
rc=$?
stopped() { [ $rc -eq 143 ] && says slow "hint: continue with: elapse train --resume $tmp/slow -n 2" && [ "$(value slow interrupted)" = true ] && [ -s "$tmp/slow/checkpoint-$(value slow steps)/manifest.json" ]; }
verify "SIGTERM writes a checkpoint, names the way on and ends with exit 143" stopped

# A stop in an evaluation of minutes, here the one before the first step, loses nothing.
train job judged -n 2 --set data.test_samples=100000000 &
for _ in $(seq 200); do [ -s "$tmp/judged/run.db" ] && break; sleep 0.05; done
sleep 0.5
listeners() { # PATTERN: local addresses of listening TCP sockets that this run's processes of such a name have
    local pid
    for pid in $(pgrep -f "elapse-exec.*$tmp/judged"); do
        [[ $(cat "/proc/$pid/comm") = $1 ]] && ls -l "/proc/$pid/fd"
    done 2>/dev/null | grep -o 'socket:.[0-9]*' | tr -dc '0-9\n' >"$tmp/sockets"
    awk 'NR == FNR {ours[$1]; next} $4 == "0A" && $10 in ours {print $2}' "$tmp/sockets" /proc/net/tcp /proc/net/tcp6
}
launcher_heard=$(listeners "mpi*")
heard=$(listeners elapse-exec)
begun=$SECONDS
pkill -TERM -P $! 2>/dev/null
wait $!
rc=$?
verify "no rank of a run on one machine listens on the network" test -s "$tmp/sockets" -a -z "$heard"
only_here() { # 127.0.0.1 and ::1, as the kernel writes them
    [ -n "$launcher_heard" ] && ! grep -vE '^(0100007F|0{24}01000000):' <<<"$launcher_heard"
}
verify "nor does its mpirun" only_here
judged() {
    [ $((SECONDS - begun)) -le 10 ] && [ $rc -eq 143 ] && [ "$(value judged interrupted)" = true ] &&
        says judged "hint: continue with: elapse train --resume $tmp/judged -n 2" ||
        { echo "exit $rc after $((SECONDS - begun)) s"; cat "$tmp/judged.err"; return 1; }
    train job judged -n 2 --resume "$tmp/judged" --set data.test_samples=50 --override && same_run k1 judged
}
verify "SIGTERM in an evaluation ends it at once, with a checkpoint that goes on with the same bits" judged

# A stop that comes while the launcher has no ranks yet to hand it to is said again.
cat >"$tmp/launcher" <<'LAUNCHER'
trap '' USR1
sleep 1
trap 'kill -USR1 $rank' USR1
shift 2
"$@" &
rank=$!
while wait $rank; rc=$?; kill -0 $rank 2>/dev/null; do :; done
exit $rc
LAUNCHER
ELAPSE_MPIRUN="bash $tmp/launcher" train job early -n 1 --set train.epochs=20000 --set train.lr_schedule.kind=constant &
sleep 0.5
begun=$SECONDS
pkill -TERM -P $! 2>/dev/null
wait $!
rc=$?
# A rank that does not listen yet just ends.
early() {
    [ $((SECONDS - begun)) -lt 30 ] && [ $rc -eq 143 ] && { [ "$(value early interrupted)" = true ] || says early 'train was stopped'; } ||
        { echo "exit $rc after $((SECONDS - begun)) s"; cat "$tmp/early.err"; false; }
}
verify "a stop before there are ranks stops the run" early

ranks_below() { # PID: the processes of its ranks
    local family=$1 pid
    while [ -n "$family" ]; do
        for pid in $family; do grep -qs elapse-exec "/proc/$pid/comm" && echo "$pid"; done
        family=$(for pid in $family; do pgrep -P "$pid"; done)
    done
}
# A limit on file sizes ends a write as a full disk does: the run saves its weights and ends.
train job limited -n 1 --set model.hidden=8 --set model.mlp=8 --set model.layers=1 --set train.epochs=20000 \
    --set train.lr_schedule.kind=constant --set train.checkpoint_every_steps=0 --set data.test_samples=2 &
for _ in $(seq 200); do [ -s "$tmp/limited/metrics.jsonl" ] && break; sleep 0.05; done
limited() {
    local pid
    for pid in $(ranks_below $1); do prlimit --pid "$pid" --fsize=60000; done
    wait $1
    [ $? -eq 3 ] && says limited "^elapse: cannot write '.*/metrics.jsonl': File too large$" &&
        says limited "^hint: saved: [0-9]* step" && "$elapse" checkpoint verify "$tmp/limited" &&
        [ -z "$(find "$tmp/limited" -name '*.tmp*')" ] || { cat "$tmp/limited.err"; false; }
}
verify "a limit on file sizes: the weights are saved, and nothing half" limited $!
# Out of memory a rank ends, with one of our exit codes, whatever its libraries wait for.
printf 'shift 2\nulimit -v $STARVE\nexec "$@"\n' >"$tmp/starved"
starved() {
    local kib begin=$SECONDS
    for kib in 100000 150000 200000; do
        STARVE=$kib ELAPSE_MPIRUN="bash $tmp/starved" timeout -k 1 20 "$elapse" train "$tmp/job.json" --out "$tmp/starved-$kib" --json
        [ $? -le 3 ] && [ $((SECONDS - begin)) -le 10 ] || return
        begin=$SECONDS
    done
}
verify "out of memory a run ends within 10 s" starved

# A rank that is killed: the front door starts the job again from the last checkpoint.
long=(-n 2 --set train.epochs=25 --set train.checkpoint_every_steps=20)
train job whole "${long[@]}"
train job killed "${long[@]}" --max-restarts 2 &
ranks=""
for _ in $(seq 400); do # found before the checkpoint is there, so that the kill follows it at once
    [ "$(wc -w <<<"$ranks")" -ge 2 ] || ranks=$(ranks_below $!)
    ls "$tmp"/killed/checkpoint-*/manifest.json >/dev/null 2>&1 && break
    sleep 0.05
done
kill -KILL "$(echo $ranks | cut -d' ' -f2)"
wait $!
restarted() { grep -q "restart 1 of 2 from the last checkpoint" "$tmp/killed.err" && same_run whole killed; }
verify "a job whose rank is killed goes on from the last checkpoint with the same bits" restarted
# Killed ranks leave segments in shared memory, which the front door removes.
cat >"$tmp/killer" <<'KILLER'
#!/bin/sh
echo "$OMPI_MCA_btl_vader_backing_directory" >"$0.where"
: >"$OMPI_MCA_btl_vader_backing_directory/vader_segment"
kill -KILL $$
KILLER
chmod +x "$tmp/killer"
swept() {
    local where
    ELAPSE_MPIRUN=$tmp/killer train job swept -n 2
    [ $? -eq 3 ] && where=$(cat "$tmp/killer.where") && [[ $where = /dev/shm/elapse-mpi-* ]] && [ ! -e "$where" ]
}
if [ -w /dev/shm ]; then
    verify "a run that is killed leaves nothing in /dev/shm" swept
else
    skip "a run that is killed leaves nothing in /dev/shm" "it may not be written to"
fi
# A run that was resumed into another folder continues in that one, whichever comes first.
two=(--set pipeline.num_stages=2 --set pipeline.num_replicas=1) # ranks that send in each step
train job begun "${long[@]}" "${two[@]}" --steps 30
fronted() {
    FAIL_MPI=step@400 FAIL_MPI_RANK=1 LD_PRELOAD=$faults "$elapse" train "${long[@]}" "${two[@]}" --no-measure --out "$tmp/front" \
        --resume "$tmp/begun" --max-restarts 1 -- "$tmp/job.json" >/dev/null 2>"$tmp/front.err"
    says front "restart 1 of 1" && [ "$(ls "$tmp/begun")" = "$(cat "$tmp/begun.ls")" ] && [ "$(digest front)" = "$(digest whole)" ]
}
ls "$tmp/begun" >"$tmp/begun.ls"
faults=$(dirname "$(readlink -f "$elapse")")/../tests/fail_mpi.so
# A call's steps are counted once, whatever is lost in between: here in step 25, behind the checkpoint of step 20.
counted() {
    FAIL_MPI=gone@90 FAIL_MPI_RANK=1 LD_PRELOAD=$faults train job counted "${long[@]}" "${two[@]}" --steps 30 --trace-steps 0 --max-restarts 1
    says counted "restart 1 of 1" && same_run begun counted
}
# A real run's rows of all its records: each step once or, done again behind the checkpoint, twice.
rows() { for id in 1 2; do "$elapse" runs show $id --db "$tmp/$1/run.db" --json; done | grep -o '"step": *[0-9]*' | tr -dc '0-9\n' | sort -nu | paste -sd' '; }
if [ -e "$faults" ]; then
    verify "a resumed run that is lost goes on in its own folder" fronted
    verify "--steps of a run that is lost counts the steps of the whole call" counted
    verify "run.db has every step up to the checkpoint that a lost run goes on from" test "$(rows counted)" = "$(seq -s' ' 30)"
else
    skip "a resumed run that is lost" "make tests builds what makes it fail; not with SAN"
fi
expect "restarts of a checkpoint want a folder to go on in" 2 "needs --out DIR, '.*' is not a run folder" \
    "$elapse" train "$tmp/job.json" --resume "$tmp/begun/checkpoint-20" --max-restarts 1
expect "restarts want a folder to go on in" 2 "max-restarts needs --out" "$elapse" train "$tmp/job.json" --max-restarts 1

accuracy() {
    "$elapse" eval "$tmp/k1" "$tmp/job.json" -n 2 --json >"$tmp/eval.json" &&
        [ "$(grep -o '"eval_accuracy":[^,}]*' "$tmp/eval.json" | tr -d ' \t' | cut -d: -f2)" = "$(value k1 eval_accuracy)" ]
}
verify "eval finds the accuracy that train reported" accuracy
train job each --set train.eval_every_epochs=1 --set train.epochs=2
epochs() { "$elapse" runs show --db "$tmp/$1/run.db" --json | tr -d ' \t\n' | grep -o '"eval_loss":[0-9.e+-]*'; }
verify "epochs are evaluated" test "$(epochs each | wc -l)" -eq 2
verify "the last one's evaluation is the run's" test "$(epochs each | tail -1)" = "\"eval_loss\":$(value each eval_loss)"
evaluated() { # a job that fixes K and R, on the ranks there are
    "$elapse" eval "$tmp/k1" "$tmp/job.json" --set pipeline.num_stages=2 --set pipeline.num_replicas=1 --json |
        grep -qF "\"eval_accuracy\":$(value k1 eval_accuracy),"
}
verify "eval needs no -n, whatever K and R the job fixes" evaluated
# Overrides of the run hold when it goes on and when it is evaluated.
train job wide -n 2 --steps 3 --set model.hidden=48 --set data.test_samples=30
own_job() {
    "$elapse" train --resume "$tmp/wide" --json >/dev/null 2>"$tmp/wide.err" && [ "$(value wide ranks)" = 2 ] &&
        "$elapse" eval "$tmp/wide" --json >"$tmp/wide.json" 2>"$tmp/wide.err" && [ ! -s "$tmp/wide.err" ] &&
        grep -qF '"eval_samples":30,' "$tmp/wide.json" &&
        grep -qF "\"eval_accuracy\":$(value wide eval_accuracy)," "$tmp/wide.json"
}
verify "resumed without -n, a run has its ranks; evaluated without a job, its own" own_job
other_job() {
    "$elapse" eval "$tmp/wide" "$tmp/job.json" --set model.hidden=48 >/dev/null 2>"$tmp/wide.err" &&
        says wide '^note: job: data.test_samples: 30 -> 50$' && ! grep -q hidden "$tmp/wide.err"
}
verify "eval tells how a given job differs" other_job
expect "eval of a job that does not fit" 2 '^hint: without JOB, the job that the run recorded' "$elapse" eval "$tmp/wide" "$tmp/job.json"
many() { [ "$(grep -c '^note: 3 ranks share 2 cores (oversubscribed)' "$tmp/many.err")" = "$1" ]; }
two_cores() { taskset -c "$(taskset -pc $$ | sed 's/.*: //; s/-/,/' | cut -d, -f1-2)" "$elapse" "$@" >/dev/null 2>"$tmp/many.err"; }
if [ "$(nproc)" -ge 2 ]; then
    two_cores train "$tmp/job.json" --out "$tmp/many" -n 3 --steps 1 --no-eval
    verify "more ranks than cores are told" many 1
    two_cores train "$tmp/job.json" --out "$tmp/two" -n 2 --steps 1 --no-eval
    verify "as many as cores are not" many 0
fi
exported() {
    "$elapse" export "$tmp/k1" -o "$tmp/weights.safetensors" &&
        "$elapse" train "$tmp/job.json" --init "$tmp/weights.safetensors" --out "$tmp/init" \
            --set train.epochs=0 -n 2 --json >/dev/null &&
        [ "$(digest init)" = "$(digest k1)" ]
}
verify "exported weights come back bit by bit through --init" exported
alone() { # a failed export leaves no description of nothing; one into the output only that
    cp -r "$tmp/k1" "$tmp/cut"
    for stage in "$tmp"/cut/checkpoint-*/stage-*; do truncate -s -10 "$stage"; done
    mkdir "$tmp/alone"
    ! "$elapse" export "$tmp/cut" -o "$tmp/alone/w.safetensors" 2>/dev/null && [ -z "$(ls "$tmp/alone")" ] &&
        "$elapse" export "$tmp/k1" -o /dev/stdout >"$tmp/streamed" && cmp "$tmp/streamed" "$tmp/weights.safetensors"
}
verify "an export leaves nothing but what was asked for" alone
into_folder() { # twice, and over what another model left there
    mkdir "$tmp/hub" && echo '{"model_type": "other"}' >"$tmp/hub/config.json" || return 1
    ! "$elapse" export "$tmp/k1" -o "$tmp/hub/alone.safetensors" 2>/dev/null || return 1
    for round in 1 2; do "$elapse" export "$tmp/k1" -o "$tmp/hub" >"$tmp/wrote" || return 1; done
    cmp "$tmp/hub/model.safetensors" "$tmp/weights.safetensors" || return 1
    for file in model.safetensors config.json preprocessor_config.json; do
        grep -q "^wrote .*$tmp/hub/$file$" "$tmp/wrote" || return 1
    done
    python3 - "$tmp/hub" <<'PY'
import json, sys
config, pixels = (json.load(open(sys.argv[1] + "/" + f)) for f in ("config.json", "preprocessor_config.json"))
assert config["model_type"] == "vit" and len(config["id2label"]) == len(config["label2id"]) > 1
assert pixels["size"] == {"height": config["image_size"], "width": config["image_size"]}
assert len(pixels["image_mean"]) == len(pixels["image_std"]) == 3 and pixels["do_normalize"]
PY
}
verify "an export into a folder is what transformers reads, also the second time" into_folder
expect "weights are not put where they are described" 2 "/config.json' would overwrite the weights' description" \
    "$elapse" export "$tmp/k1" -o "$tmp/alone/config.json"
stepless() {
    "$elapse" train "$tmp/job.json" --out "$tmp/stepless" --set train.epochs=0 >"$tmp/stepless.out" 2>/dev/null &&
        grep -q '^steps  *0 of 0$' "$tmp/stepless.out" && ! grep -q 'loss\|nan' "$tmp/stepless.out"
}
verify "a run without a step tells no loss" stepless
unknown_peak() { "$elapse" compare "$tmp/k1" --json | grep -q '"sim_peak_bytes":null,"peak_error":null'; }
verify "a peak that the profile does not know is no 0" unknown_peak

# A run that is over: resumed, it answers with its summary and leaves its files alone.
over() {
    find "$tmp/k1" -type f -exec sha256sum {} + | sort >"$tmp/before"
    "$elapse" train "$tmp/job.json" -n 2 --resume "$tmp/k1" --json >"$tmp/over.json" &&
        find "$tmp/k1" -type f -exec sha256sum {} + | sort | cmp - "$tmp/before" &&
        grep -qF "\"weights_sha256\":$(digest k1)" "$tmp/over.json" && "$elapse" compare "$tmp/k1" --json >/dev/null
}
verify "a run that is over stays as it is when resumed" over
longer() { # and goes on where it is told to
    cp -r "$tmp/k1" "$tmp/longer"
    "$elapse" train --resume "$tmp/longer" --json 2>"$tmp/longer.err" >/dev/null && says longer 'the run is finished after 14 steps' &&
        ! "$elapse" train --resume "$tmp/longer" --set train.epochs=3 2>"$tmp/longer.err" &&
        says longer '^note: job: train.epochs: 2 -> 3$' && says longer '^hint: --override' &&
        "$elapse" train --resume "$tmp/longer" --set train.epochs=3 --override --json >/dev/null 2>&1 && [ "$(value longer steps)" = 21 ]
}
verify "with more epochs it goes on, where --override says so" longer
kept_few() { ls -d "$tmp"/longer/checkpoint-* | sed 's/.*-//' | sort -n | tr '\n' ' ' | grep -qx '15 20 21 '; }
verify "the newest three checkpoints are kept" kept_few
torn() { # a checkpoint that a disk has damaged: the one before it is taken, and the bits are those of the whole run
    cp -r "$tmp/k1" "$tmp/torn" && rm "$tmp/torn/summary.json"
    printf x | dd of="$tmp/torn/checkpoint-14/stage-00000.safetensors" bs=1 seek=9000 conv=notrunc 2>/dev/null
    "$elapse" checkpoint verify "$tmp/torn" >"$tmp/torn.out" 2>&1
    [ $? -eq 1 ] && grep -q "^'.*stage-00000.safetensors' is damaged" "$tmp/torn.out" && "$elapse" checkpoint verify "$tmp/torn/checkpoint-10" >/dev/null &&
        ! "$elapse" eval "$tmp/torn/checkpoint-14" "$tmp/job.json" 2>/dev/null && ! "$elapse" export "$tmp/torn/checkpoint-14" -o "$tmp/torn.st" 2>/dev/null &&
        train job torn -n 1 --resume "$tmp/torn" && says torn "is damaged: .*; continuing from checkpoint-10" && same_run k1 torn
}
verify "a damaged checkpoint is refused, and the newest good one taken" torn
elsewhere() {
    "$elapse" train "$tmp/job.json" -n 2 --resume "$tmp/k1" --out "$tmp/copy" --json >/dev/null && [ "$(digest copy)" = "$(digest k1)" ] &&
        "$elapse" eval "$tmp/copy" "$tmp/job.json" >/dev/null
}
verify "resumed into another folder, its checkpoint is there too" elsewhere
earlier() { # what came behind it is another history
    cp -r "$tmp/k1" "$tmp/earlier"
    "$elapse" train "$tmp/job.json" --resume "$tmp/earlier/checkpoint-5" --steps 2 --json >/dev/null 2>"$tmp/earlier.err" &&
        [ "$(wc -l <"$tmp/earlier/metrics.jsonl")" = 7 ] && [ -d "$tmp/earlier/checkpoint-14.old-1" ] &&
        train job earlier -n 2 --resume "$tmp/earlier" && same_run k1 earlier
}
verify "resumed from an earlier checkpoint, the run goes on there when resumed again" earlier
within() { # a checkpoint as the shell completes its name
    train job within -n 1 --steps 4 --set train.keep_checkpoints=0 &&
        "$elapse" train --resume "$tmp/within/checkpoint-4/" --json >/dev/null && # with its own job
        [ -d "$tmp/within/checkpoint-14" ] && [ ! -e "$tmp/within/checkpoint-4/metrics.jsonl" ] && same_run k1 within
}
verify "resumed from a checkpoint named with a slash, the run goes on around it" within
stored() { # what it is planned from: the store's file is opened, and a note says where it is gone
    "$elapse" profiles import bridge/torch/tests/small/profile.json --db "$tmp/own.db" >/dev/null &&
        train job stored -n 1 --steps 3 --db "$tmp/own.db" && grep -q '"db": *"[^"]*/own.db"' "$tmp/stored/checkpoint-3/manifest.json" &&
        echo "no store" >"$tmp/own.db" &&
        ! "$elapse" train --resume "$tmp/stored" -n 1 2>"$tmp/stored.err" && says stored "own.db" &&
        rm "$tmp/own.db" && "$elapse" train --resume "$tmp/stored" -n 1 --json >/dev/null 2>"$tmp/stored.err" &&
        says stored "own.db', which is gone" && same_run k1 stored
}
verify "a resumed run plans from the store of its run" stored
held() { # an older start of the run still trains; it prunes a checkpoint, then ends
    local holder
    cp -r "$tmp/k1" "$tmp/held"
    : >"$tmp/held.err"
    flock "$tmp/held" sh -c "touch '$tmp/holds'; until grep -q 'in use' '$tmp/held.err'; do sleep 0.05; done; rm -r '$tmp/held/checkpoint-14'" &
    holder=$!
    until [ -e "$tmp/holds" ]; do sleep 0.05; done
    "$elapse" train --resume "$tmp/held" -n 2 --json >/dev/null 2>"$tmp/held.err"
    rc=$?
    wait $holder
    [ $rc -eq 0 ] && says held "folder '$tmp/held' is in use by a run that has not ended; waiting 13 s" && same_run k1 held
}
verify "a resumed run waits for the older start that has its folder, and then chooses the checkpoint" held
cp -r "$tmp/k1" "$tmp/other"
expect "a run is not resumed into the folder of another" 2 "folder '$tmp/other' already holds a run" \
    "$elapse" train --resume "$tmp/within/checkpoint-4" --out "$tmp/other"
verify "which stays as it is" diff -r "$tmp/k1" "$tmp/other"
expect "a run is not resumed from an earlier checkpoint without its trace" 3 "cannot write '.*/none/t.json': No such file" \
    "$elapse" train "$tmp/job.json" --resume "$tmp/other/checkpoint-5" --trace "$tmp/none/t.json"
verify "and loses nothing" diff -r "$tmp/k1" "$tmp/other"
unsummed() { # killed between its last checkpoint and its summary
    cp -r "$tmp/k1" "$tmp/unsummed" && rm "$tmp/unsummed/summary.json"
    train job unsummed -n 1 --resume "$tmp/unsummed" && [ "$(value unsummed final_loss)" = "$(value k1 final_loss)" ] &&
        "$elapse" compare "$tmp/unsummed" --json >/dev/null
}
verify "a run that ended before its summary gets one, and can be compared" unsummed
named() { # the default folder, and a store named from here; the record is read from elsewhere
    cp "$tmp/stored.db" "$tmp/here.db"
    (cd "$tmp" && "$elapse" train "$tmp/job.json" --set 'name=../a/b' --set train.max_steps=2 --db here.db >/dev/null) &&
        "$elapse" compare "$tmp/runs/..-a-b" --json >/dev/null
}
"$elapse" profile -n 1 --quick --model vit-tiny:layers=1,hidden=16,heads=2,mlp=32,image=8,patch=4 --microbatches 1 \
    --db "$tmp/stored.db" >/dev/null 2>&1
verify "a name is one folder, and a store is found from elsewhere" named

expect "profile: a size twice is refused before anything is measured" 2 'value 3 is 4 as value 1' \
    "$elapse" profile --microbatches 4,2,4 -n 1
expect "profile: so is a name that is none" 2 'name must be 1\.\.63 bytes long' "$elapse" profile --name '' -n 1

# Bad input: one line, the right status, nothing left behind.
bad="$tmp/bad"
refuse() { # NAME STATUS PATTERN ARGS...
    local name=$1 status=$2 pattern=$3
    shift 3
    expect "$name" "$status" "$pattern" "$elapse" train "$tmp/job.json" --out "$bad" "$@"
    check "$name: nothing is left behind" test ! -e "$bad"
}
refuse "an unknown key" 2 'train.epoch' -n 2 --set train.epoch=3
refuse "post-validation" 2 'train.post_validation is for plan and sim' -n 2 --set train.post_validation=true
refuse "more stages than items" 1 'cannot cut 11 items into 12 stages' -n 12
refuse "ranks that do not divide" 2 'num_replicas must divide the number of ranks 3, got 2' -n 3 --set pipeline.num_replicas=2
expect "its hint" 2 '^hint: use -n 2$' "$elapse" train "$tmp/job.json" -n 3 --out "$bad" --set pipeline.num_replicas=2
refuse "a missing data file" 3 "cannot open '.*data_batch_1.bin'" -n 2 --set data.kind=cifar10 --set "data.path=$tmp/none" --set model.image=32
mkdir "$tmp/cifar"
head -c 5000 /dev/zero >"$tmp/cifar/data_batch_1.bin"
refuse "a truncated data file" 2 "data_batch_1.bin' has 5000 bytes, must be a positive multiple of 3073" \
    -n 2 --set data.kind=cifar10 --set "data.path=$tmp/cifar" --set model.image=32
refuse "a batch beyond the data" 2 'train.batch of 2000000000 exceeds the [0-9]* training samples' -n 1 --set train.batch.per_pipeline=2000000000
refuse "a trace in place of a folder" 3 "cannot write '$tmp': Is a directory" -n 2 --trace "$tmp"
refuse "a trace that cannot be written" 3 "cannot write '.*/none/t.json': No such file" -n 2 --trace "$tmp/none/t.json"
mkdir "$tmp/disk"
if unshare -rm mount -t tmpfs -o size=12k none "$tmp/disk" 2>/dev/null; then
    on_disk=(unshare -rm bash -c 'mount -t tmpfs -o size=12k none "$0" && "$@"; rc=$?; ls "$0" >&2; exit $rc' "$tmp/disk")
    expect "a disk that has no room for a trace" 3 "cannot write '.*/disk/t.json': No space left on device" \
        "${on_disk[@]}" "$elapse" train "$tmp/job.json" --out "$tmp/untraced" --no-eval --trace "$tmp/disk/t.json"
    verify "a disk that has no room for a record: nothing is left behind" \
        test "$("${on_disk[@]}" "$elapse" train "$tmp/job.json" --out "$tmp/disk/run" 2>&1)" = \
        "elapse: cannot write: no room left on the disk of store '$tmp/disk/run/run.db'"
else
    skip "a full disk" "this machine lets nobody mount one"
fi
expect "a folder that cannot be made" 3 "cannot make folder '/proc/none'" "$elapse" train "$tmp/job.json" --out /proc/none/run
mkdir -p "$tmp/foreign/checkpoint-7" && echo mine >"$tmp/foreign/checkpoint-7/manifest.json" && cp -r "$tmp/foreign" "$tmp/foreign.was"
expect "a folder with what others made" 2 "folder '.*/foreign' holds 'checkpoint-7', which is not of this run" \
    "$elapse" train "$tmp/job.json" --out "$tmp/foreign"
verify "which stays as it was" diff -r "$tmp/foreign" "$tmp/foreign.was"
echo "no database" >"$tmp/text.db"
expect "a store that is not SQLite" 2 'text.db' "$elapse" train "$tmp/job.json" --out "$bad" --db "$tmp/text.db" -n 2
check "a store that is not SQLite: nothing is left behind" test ! -e "$bad"
expect "a folder that holds a run" 2 "^hint: .*continue with --resume $tmp/k1$" "$elapse" train "$tmp/job.json" --out "$tmp/k1"
mkdir "$tmp/dead"
cp "$tmp/k1/metrics.jsonl" "$tmp/dead"
expect "a folder that holds a run without a checkpoint" 2 '^hint: .*no checkpoint to continue from$' "$elapse" train "$tmp/job.json" --out "$tmp/dead"
expect "a checkpoint of another model" 2 "holds another model" "$elapse" eval "$tmp/k1" "$tmp/job.json" --set model.hidden=64
refuse "a checkpoint of another optimizer" 2 'the job has lamb' -n 2 --resume "$tmp/k1" --set train.optimizer.kind=lamb --override
refuse "another job than the recorded one" 2 '^note: job: train.optimizer.lr: 0.05 -> 0.5$' --resume "$tmp/k1" --set train.optimizer.lr=0.5
expect "a missing checkpoint" 3 "none" "$elapse" eval "$tmp/none" "$tmp/job.json"
expect "a missing checkpoint, before the ranks are counted" 3 "cannot open '.*/none'" \
    "$elapse" eval "$tmp/none" "$tmp/job.json" --set pipeline.num_stages=2 --set pipeline.num_replicas=1
head -c 100 "$tmp/weights.safetensors" >"$tmp/short.safetensors"
expect "a truncated safetensors file" 2 "short.safetensors': header length" "$elapse" eval "$tmp/short.safetensors" "$tmp/job.json"
train job good -n 2 --steps 6
expect "a loss that is not finite" 1 "step [0-9]+: the loss .* is (nan|-?inf), first in '[a-z0-9]+' \(rank [01]\)" \
    "$elapse" train "$tmp/job.json" -n 2 --resume "$tmp/good" --set train.optimizer.lr=1e30 --set train.clip_norm=0 --override
kept() { [ "$(ls -d "$tmp"/good/checkpoint-* | tail -1)" = "$tmp/good/checkpoint-6" ] && train job good -n 2 --resume "$tmp/good" && same_run k1 good; }
verify "the last good checkpoint is still there, and the run goes on from it" kept
finish
