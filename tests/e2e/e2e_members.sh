#!/bin/bash
# Elastic membership under --max-restarts: a run loses a node, goes on with the ranks that are left,
# and takes the node back at a checkpoint; a rank that is lost twice is given up. The nodes are
# names only: a launcher drops them, a probe asks a file, and the loss is a rank that is killed.
# alone: runs are killed at a given moment
# group: slow
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin
real=${ELAPSE_MPIRUN:-mpirun}
if [ ! -x "${elapse}-exec" ] || [ "$real" != "${real% *}" ]; then
    skip "elastic membership" "it wants elapse-exec and a launcher without words of its own"
    finish
fi

cat >"$tmp/job.json" <<'JOB'
{ "name": "members",
  "model": {"family": "vit", "preset": "vit-tiny", "image": 16, "patch": 8, "hidden": 32, "heads": 2,
            "mlp": 64, "layers": 2, "classes": 10},
  "data": {"kind": "synthetic", "train_samples": 512, "test_samples": 32},
  "train": {"epochs": 120, "batch": {"global": 32}, "dropout": 0.1, "reduction": "canonical",
            "optimizer": {"kind": "sgd", "lr": 0.02, "momentum": 0.9}, "checkpoint_every_steps": 8, "seed": 1},
  "pipeline": {"num_stages": 2, "num_replicas": 2, "num_microbatches": 8, "schedule": "1f1b"} }
JOB
# The launcher: takes --host LIST out, and notes it with the number of ranks.
cat >"$tmp/launcher" <<SH
#!/bin/bash
words=() hosts=
while [ \$# -gt 0 ]; do
    if [ "\$1" = --host ]; then hosts=\$2; shift 2; else words+=("\$1"); shift; fi
done
echo "\$hosts \${words[1]}" >>"$tmp/starts"
exec $real "\${words[@]}"
SH
printf '#!/bin/sh\n[ ! -e "%s/down-$1" ]\n' "$tmp" >"$tmp/probe"
chmod +x "$tmp/launcher" "$tmp/probe"
export ELAPSE_PROBE="$tmp/probe"
here=$(hostname)
ranks_of() { # PID: ranks of a run in the background
    local child
    for child in $(ps -o pid= --ppid "$1"); do
        [ "$(ps -o comm= -p "$child")" = elapse-exec ] && echo "$child"
        ranks_of "$child"
    done
}
until_there() { # RUN TEXT: until its stderr has it
    for _ in $(seq 600); do grep -Eq -- "$2" "$tmp/$1.err" && return; sleep 0.05; done
    cat "$tmp/$1.err"
    false
}
checkpoint_there() { # RUN
    for _ in $(seq 600); do ls "$tmp/$1"/checkpoint-*/manifest.json >/dev/null 2>&1 && return; sleep 0.05; done
    cat "$tmp/$1.err"
    false
}
kill_one() { kill -KILL "$(ranks_of "$1" | tail -1)"; }

train job whole -n 4
lose_and_return() {
    local run
    ELAPSE_MPIRUN="$tmp/launcher --host $here:2,other:2" train job lossy -n 4 --max-restarts 3 &
    run=$!
    checkpoint_there lossy || return
    touch "$tmp/down-other"
    kill_one $run
    until_there lossy '^elapse: on 2 ranks from step [0-9]+ on; lost: ' || return
    rm "$tmp/down-other"
    wait $run || { cat "$tmp/lossy.err"; return 1; }
}
verify "a run that loses a node goes on and ends" lose_and_return
verify "with the ranks that are left, by name" says lossy \
    'restart 1 of 3 from the last checkpoint, with 2 of 4 ranks: node other does not answer$'
verify "it takes the node back" says lossy '^elapse: the run continues with 4 ranks: 2 ranks join again$'
verify "the launcher got these hosts and ranks" test "$(paste -sd' ' "$tmp/starts")" = \
    "$here:2,other:2 4 $here:2 2 $here:2,other:2 4"
verify "it has the bits of the run that lost nothing" same_run whole lossy
events() { grep -o '"event":"restart".*"ranks":[0-9]*' "$tmp/$1/metrics.jsonl" | sed 's/.*"ranks"://' | paste -sd' '; }
verify "metrics tell both restarts" test "$(events lossy)" = "2 4"
verify "and the summary" test "$(value lossy count)" = 2
joined() { grep -o '"event":"restart","step":[0-9]*,"ranks":4' "$tmp/lossy/metrics.jsonl" | grep -o '"step":[0-9]*' | cut -d: -f2; }
verify "ranks join at a checkpoint" test $((($(joined) - 1) % 8)) -eq 0
stored() { "$elapse" runs show --db "$tmp/lossy/run.db" >"$tmp/shown" && grep -Eq '^restarted in epoch [0-9]+: .* lost$' "$tmp/shown" || { cat "$tmp/shown"; false; }; }
verify "runs show has the time lost" stored

# Without hosts: a rank is expected back at once; lost again before the next checkpoint, it is given up.
given_up() {
    local run first
    ELAPSE_MPIRUN=$real train job twice -n 4 --max-restarts 3 --set train.checkpoint_every_steps=400 &
    run=$!
    checkpoint_there twice || return
    kill_one $run
    until_there twice '^elapse: on 4 ranks from step' || return
    kill_one $run
    wait $run || { cat "$tmp/twice.err"; return 1; }
    says twice 'restart 2 of 3 from the last checkpoint, with 3 of 4 ranks: lost twice without a new checkpoint' &&
        says twice '^elapse: the run continues with 4 ranks: 1 rank joins again$'
}
verify "a rank lost twice is given up, and tried again after an epoch" given_up
verify "with the same bits" same_run whole twice
too_few() {
    local run
    touch "$tmp/down-other"
    ELAPSE_MPIRUN="$tmp/launcher --host $here:2,other:2" train job few -n 4 --max-restarts 3 --min-ranks 3 &
    run=$!
    checkpoint_there few || return
    kill_one $run
    wait $run
    [ $? -eq 3 ] && says few '^elapse: 2 ranks are left, --min-ranks is 3 \(node other does not answer\)$'
}
verify "with fewer ranks than --min-ranks it ends" too_few
printf 'step,rank,event\n20,1,lost\n45,0,lost\n60,1,back\n100,0,back\n130,3,lost\n' >"$tmp/losses.csv"
ELAPSE_MPIRUN=$real train job replayed -n 4 --max-restarts 3 --plan-losses "$tmp/losses.csv"
verify "a trace of losses is replayed, with the same bits" same_run whole replayed
"$elapse" report "$tmp/replayed" -o "$tmp/replayed.html" >/dev/null
verify "the report has a row for each" test "$(grep -cE '(the losses to replay leave|joins again)' "$tmp/replayed.html")" = 5
verify "and draws them" grep -q 'ranks in use' "$tmp/replayed.html"
verify "each loss and return has its ranks" test "$(events replayed)" = "3 2 3 4 3"
# With copies in memory a kill costs the step under way, also before the first file, and nothing stays there.
sed 's/"epochs": 120/"epochs": 6/; s/"checkpoint_every_steps": 8/"checkpoint_every_steps": 40, "checkpoint_memory_every_steps": 1/' \
    "$tmp/job.json" >"$tmp/copies.json"
printf '20,1,lost\n45,1,back\n90,3,lost\n' >"$tmp/copies.csv"
lost_steps() { grep -o '"event":"restart".*"lost_steps":[0-9]*' "$tmp/$1/metrics.jsonl" | sed 's/.*://' | paste -sd' '; }
copies_of() { echo "/dev/shm/elapse-run-$(grep -o '[0-9a-f]\{32\}' "$tmp/$1/run.json")"; }
export ELAPSE_MPIRUN=$real
train copies uncopied -n 4 --set train.checkpoint_memory_every_steps=0
train copies copied -n 4 --max-restarts 3 --plan-losses "$tmp/copies.csv"
verify "copies in memory have the same bits" same_run uncopied copied
"$elapse" report "$tmp/copied" -o "$tmp/copied.html" >/dev/null
verify "and the report says for how long steps waited" grep -Eq 'Steps waited .* for [0-9]+ memory copies, at most .* for one' "$tmp/copied.html"
verify "and lose a step, not 20" test "$(lost_steps copied)" = "1 0 1"
verify "the steps' waits for them are in the metrics and the summary" calculate \
    "$(value copied longest_stall_ns) >= 0 && $(grep -c '"stall_ns":' "$tmp/copied/metrics.jsonl") > 30 && \
     $(tr -d ' \t\n' <"$tmp/copied/summary.json" | sed 's/.*"memory_copies":{"count":\([0-9]*\),"stall_ns":\([0-9]*\).*/\1 > 0 \&\& \2/') > 0"
verify "they are removed" test ! -e "$(copies_of copied)"
train copies killed -n 4 --max-restarts 1 --plan-losses <(printf '50,1,lost\n60,0,lost\n')
touch "$(copies_of killed)/foreign"
for part in "$(copies_of killed)"/checkpoint-*/stage-00000.safetensors; do
    printf x | dd of="$part" bs=1 seek=3000 conv=notrunc 2>/dev/null
done
"$elapse" train --resume "$tmp/killed" -n 4 >"$tmp/killed.out" 2>"$tmp/killed.err"
verify "a damaged copy falls back to the file" says killed 'the copy in memory cannot be used: '
verify "with the same bits" same_run uncopied killed
verify "and what is foreign stays" test "$(ls "$(copies_of killed)")" = "$(printf 'foreign\nowner')"
rm -rf "$(copies_of killed)"
expect "losses want restarts" 2 "plan-losses needs --max-restarts" "$elapse" train "$tmp/job.json" --plan-losses "$tmp/losses.csv"
expect "min-ranks wants restarts" 2 "min-ranks needs --max-restarts" "$elapse" train "$tmp/job.json" -n 2 --min-ranks 2
finish
