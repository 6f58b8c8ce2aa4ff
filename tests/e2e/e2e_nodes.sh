#!/bin/bash
# Training over several machines: two nodes of namespaces (nodes.sh), between which there is only a
# network; same bits as on one machine, a cache a node, dead ranks, clocks, links.
# alone: ends of runs are timed
# group: slow
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
. "$(dirname "$0")/nodes.sh"
nodes_as_root
case ${TMPDIR:-/dev/shm} in /dev/shm*) export TMPDIR=/tmp ;; esac # each node has a /dev/shm of its own
begin
as_users_wait
if ! nodes_here; then
    skip "training over several nodes" "$why_not"
    finish
fi
in_memory "$tmp" || true            # where a busy disk keeps nobody waiting for a checkpoint
export TMPDIR="$tmp"                # root of a user namespace may not write where root has

freezing_vit
static=(--set freeze.policy=none --set train.epochs=2)
train vit one -n 1
train vit one-static -n 1 "${static[@]}"

here=$elapse
verify "nodes come up" nodes_up left right far asleep
[ ! -e "$tmp/.checks_failed" ] || finish
verify "with shared memory of their own" test "$(on left touch /dev/shm/mine && on right ls -A /dev/shm; on left rm /dev/shm/mine)" = ""
elapse=$nodes/elapse
over() { export ELAPSE_MPIRUN="$(launcher "$@")"; }
over left:2 right:2

# Plans that cross the network by activations, by gradients, by both.
shape() { echo --set pipeline.num_stages=$1 --set pipeline.num_replicas=$2; }
for k in 4 2 1; do
    before=$(wire right)
    train vit k$k -n 4 "${static[@]}" $(shape $k $((4 / k)))
    bytes[k]=$(($(wire right) - before))
    verify "K=$k R=$((4 / k)) over two nodes has the bits of one rank" same_run one-static k$k
done
node_ranks() { tr -d ' \t' <"$tmp/$1/summary.json" | grep -o '"node_ranks":[^]]*'; }
verify "the summary says which node has how many ranks" test "$(node_ranks k4)" = '"node_ranks":[2,2'
over_file() { # as over, but the hosts stand in a file
    over "$@"
    if [[ $ELAPSE_MPIRUN == *launcher-exec* ]]; then
        printf '%s\n' "$@" >"$tmp/hosts"
        ELAPSE_MPIRUN="${ELAPSE_MPIRUN% -hosts *} -f $tmp/hosts"
    else
        printf '%s\n' "${@/:/ slots=}" >"$tmp/hosts"
        ELAPSE_MPIRUN="${ELAPSE_MPIRUN% --host *} --hostfile $tmp/hosts"
    fi
}
over_file left:2 right:1
train vit uneven -n 3 "${static[@]}" $(shape 3 1)
verify "K=3 on nodes of 2 and 1 ranks, by a file of hosts, has them too" same_run one-static uneven
verify "those are the file's nodes" test "$(node_ranks uneven)" = '"node_ranks":[2,1'
over left:2 right:2

# Ranks that the launcher deals out in turn: pipelines still lie within nodes as far as they can.
in_turn="--map-by node"; [[ $ELAPSE_MPIRUN != *launcher-exec* ]] || in_turn="-ppn 1"
by_turns() {
    local before
    before=$(wire right)
    ELAPSE_MPIRUN="$ELAPSE_MPIRUN $in_turn" train vit turns -n 4 "${static[@]}" $(shape 4 1) && same_run k4 turns &&
        calculate "$(wire right) - $before < 1.3 * ${bytes[4]}"
}
verify "ranks dealt out in turn cross the network no more often" by_turns

# Elastic, with a cache a node; what does not fit there goes to a folder that both nodes see.
mkdir "$tmp/disk"
elastic=(-n 4 --set 'elastic.stages=[4,4,2,1]' --set cache.policy=on)
train vit shrinks "${elastic[@]}"
verify "an elastic run over two nodes shrinks its pipelines" has_shapes shrinks "0=0:4:1 1=1:4:1 2=2:2:2 3=4:1:4 "
verify "it has the bits of one rank without elasticity" same_run one shrinks
verify "it read frozen activations from the cache" has shrinks cache_upgrades -gt 0
train vit spills "${elastic[@]}" --set cache.limit_bytes=40KB --set "cache.spill_dir=$tmp/disk"
verify "a spill into a shared folder has them too" same_run one spills
verify "it read as much" has spills cache_upgrades -eq "$(value shrinks cache_upgrades)"
verify "with a note of both places" grep -q "cache: .* in /dev/shm, .* in $tmp/disk" "$tmp/spills/summary.json"
verify "and left nothing in the folder" test -z "$(ls -A "$tmp/disk")"
train vit part "${elastic[@]}" --steps 17
elapse=$here ELAPSE_MPIRUN=$mpirun train vit part -n 2 --set 'elastic.stages=[2,2,2,1]' --resume "$tmp/part" --override
verify "begun on two nodes and gone on with on one it is the same run" same_run one part

# One clock: the nodes' own are 1000 s apart.
clocks() {
    train vit traced -n 4 "${static[@]}" $(shape 4 1) --trace "$tmp/trace.json" || return
    [ "$(grep -o '"pid": *[0-9]*' "$tmp/trace.json" | sort -u | wc -l)" -ge 1 ] || return
    grep -o '"ts": *[0-9.]*' "$tmp/trace.json" | tr -d '" ' | cut -d: -f2 |
        awk -v wall="$(value traced wall_ns)" '$1 > m {m = $1} END {print m " us, wall " wall " ns"; exit !(m > 0 && m * 1000 < wall)}' &&
        calculate "$(grep -o '"step_ns":[0-9]*' "$tmp/traced/metrics.jsonl" | cut -d: -f2 | paste -sd+) < $(value traced wall_ns)"
}
verify "times of both nodes are on one clock" clocks

# A rank that is killed on the other node: all end soon, with the cause, and nothing stays behind.
long=(-n 4 --set train.epochs=9000 --set train.lr_schedule.kind=constant --set freeze.policy=none)
written() { # RUN PATH: until a run in the background has such a file
    for _ in $(seq 1200); do [ -n "$(find "$tmp/$1" -path "$tmp/$1/$2" -size +0 2>/dev/null)" ] && return; sleep 0.05; done
    echo "$1: no $2 yet"
    cat "$tmp/$1.err"
    false
}
fails() { # RUN PID: as it should
    local rc
    wait "$2"
    rc=$?
    [ $rc -eq 3 ] || { echo "$1: exit $rc"; cat "$tmp/$1.err"; false; }
}
soon() { # SINCE: some 3 and 9 s on an idle machine, minutes where nobody looks
    [ $((SECONDS - $1)) -le 60 ] || { echo "$((SECONDS - $1)) s"; false; }
}
all_gone() {
    for _ in $(seq 40); do [ "$(left left elapse-exec) $(left right elapse-exec) $(left far elapse-exec)" = "0 0 0" ] && return; sleep 0.1; done
    everywhere ps ax
    false
}
everywhere() { on left "$@" && on right "$@" && on far "$@"; }
nothing_left() { all_gone && [ -z "$(everywhere ls -A /dev/shm)" ] || { everywhere ls -A /dev/shm; false; }; }
killed() {
    local run=$! begin
    written killed metrics.jsonl || return
    begin=$SECONDS
    on right pkill -KILL -o -x elapse-exec
    fails killed $run && soon $begin && says killed 'signal 9|[Kk]illed'
}
train vit killed "${long[@]}" &
verify "a rank killed on the other node ends the job soon, with the cause" killed
verify "nothing of it stays on any node" nothing_left
lost() { # the daemon of the launcher, as when the node goes down
    local run=$! begin
    written lost metrics.jsonl || return
    begin=$SECONDS
    on right pkill -KILL -x "orted|prted|hydra_pmi_proxy"
    fails lost $run && soon $begin && says lost '^elapse: '
}
train vit lost "${long[@]}" &
verify "so does its launcher there, killed" lost
verify "no process of that stays either" all_gone
on right sh -c 'rm -f /dev/shm/*' # it had nobody left to do so
stopped() {
    local run=$!
    written stopped metrics.jsonl || return
    on left pkill -TERM -x elapse
    wait $run
    [ $? -eq 143 ] && [ "$(value stopped interrupted)" = true ] && [ -s "$tmp/stopped/checkpoint-$(value stopped steps)/manifest.json" ]
}
train vit stopped "${long[@]}" &
verify "SIGTERM reaches the ranks of both nodes: a checkpoint, exit 143" stopped

# A node whose cable is pulled: no connection is closed. It has rank 0 and a stage of one job, a replica of another; the
# processes of a third are stopped meanwhile, by which no node is lost. It is pulled once the line about the first checkpoint
# has come over it: a connection with bytes to deliver sends no probes (docs/nodes.md, the slow case).
declare -A unheard=()
unheard_job() { # NAME K HOST...
    over "${@:3}"
    train vit $1 "${long[@]/4/2}" $(shape $2 $((2 / $2))) --set train.checkpoint_every_steps=2 &
    unheard[$1]=$!
}
vanished() {
    local job begin
    for job in "${!unheard[@]}"; do
        written $job 'checkpoint-*/manifest.json' || return
        for _ in $(seq 200); do says $job 'on disk after' >"$tmp/said" && break; sleep 0.05; done
        says $job 'on disk after' || return
    done
    on asleep pkill -STOP 'orted|elapse-exec'
    begin=$SECONDS
    unplug right
    for job in stages replicas; do
        fails $job "${unheard[$job]}" && says $job 'lost communication' && says $job 'Remote daemon: .* on node right' || return
    done
    soon $begin
}
goes_on() {
    elapse=$here ELAPSE_MPIRUN=$mpirun train vit stages "${long[@]/4/1}" --resume "$tmp/stages" --override --steps 2 &&
        has stages steps -gt 2
}
waited() {
    on asleep pkill -CONT 'orted|elapse-exec'
    on left pkill -TERM -x elapse
    wait "${unheard[waits]}"
    [ $? -eq 143 ] && [ "$(value waits interrupted)" = true ] && has waits steps -gt 2
}
if [[ $ELAPSE_MPIRUN == *launcher-exec* ]]; then
    skip "a node that vanishes" "keepalive of Open MPI's daemons; not tried with MPICH"
else
    unheard_job stages 2 right:1 far:1
    unheard_job replicas 1 left:1 right:1
    unheard_job waits 2 left:1 asleep:1
    verify "a node that vanishes ends its jobs soon, by name" vanished
    verify "a node whose processes are stopped ends nothing" waited
    verify "nothing of those stays, on either side of the cut" nothing_left
    verify "the last checkpoint is intact" goes_on
    plug right
fi

# A cut of the network that heals before anybody gives up: the run waits, and goes on.
over left:1 right:1
healed() {
    train vit healed -n 2 --set train.epochs=60 --set train.lr_schedule.kind=constant --set freeze.policy=none $(shape $1 $((2 / $1))) &
    local run=$! before
    for _ in $(seq 1200); do [ "$(grep -c '"loss"' "$tmp/healed/metrics.jsonl" 2>/dev/null)0" -ge 200 ] && break; sleep 0.05; done
    switch set to-right nomaster
    sleep 0.5
    before=$(wc -l <"$tmp/healed/metrics.jsonl")
    sleep 1.5
    [ "$(wc -l <"$tmp/healed/metrics.jsonl")" -eq "$before" ] || { echo "nothing was cut"; return 1; }
    plug right
    wait $run && same_run uncut healed && rm -r "$tmp/healed"
}
elapse=$here ELAPSE_MPIRUN=$mpirun train vit uncut -n 1 --set train.epochs=60 --set train.lr_schedule.kind=constant --set freeze.policy=none
for k in 2 1; do verify "a network that is cut for 2 s stops nothing, K=$k" healed $k; done

# A profile knows links inside a node and between nodes.
over left:2 right:1
profiled() {
    $elapse profile -n 3 --quick --model vit-tiny:layers=1,hidden=16,heads=2,mlp=32,image=8,patch=4 --microbatches 1 --db "$tmp/nodes.db" >/dev/null &&
        $here profiles show cpu-left --db "$tmp/nodes.db" >"$tmp/rows" || return
    [ "$(grep -c '^ mpi node ranks=1' "$tmp/rows") $(grep -c '^ mpi net ranks=1' "$tmp/rows")" = "9 9" ] &&
        [ "$(sed -n 's/.*allreduce mpi \(n[a-z]* ranks=[0-9]*\).*/\1/p' "$tmp/rows" | sort | uniq -c | tr -s ' \n' ' ')" = " 7 net ranks=2 7 net ranks=3 7 node ranks=2 " ] ||
        { cat "$tmp/rows"; false; }
}
verify "profile measures links and sums inside a node and between nodes" profiled
over left:1 right:1
spread_out() {
    $elapse profile -n 2 --quick --model vit-tiny:layers=1,hidden=16,heads=2,mlp=32,image=8,patch=4 --microbatches 1 \
        --name spread --db "$tmp/nodes.db" >/dev/null && $here profiles show spread --db "$tmp/nodes.db" >"$tmp/rows" &&
        [ "$(grep -c '^ mpi net ranks=1' "$tmp/rows") $(grep -c ' mpi node ' "$tmp/rows")" = "9 0" ]
}
verify "and with one rank a node" spread_out
# A node that goes down with its memory. Each has the files of the one before too, so the run goes on where it was.
copied=(--set freeze.policy=none --set train.epochs=30 --set train.checkpoint_every_steps=1000 --set train.checkpoint_memory_every_steps=1)
elapse=$here ELAPSE_MPIRUN=$mpirun train vit uncopied -n 1 "${copied[@]}" --set train.checkpoint_memory_every_steps=0
over left:2 far:1 asleep:1
node_dies() {
    local run=$!
    for _ in $(seq 1200); do [ "$(grep -c '"loss"' "$tmp/copied/metrics.jsonl" 2>/dev/null)0" -ge 200 ] && break; sleep 0.05; done
    kill -KILL "$(cat "$nodes/asleep.pid")" && wait $run && says copied ' on each node' &&
        says copied 'continuing from the copy of step [0-9]* in memory' && says copied ', with 3 of 4 ranks: node asleep does not answer'
}
train vit copied -n 4 "${copied[@]}" --max-restarts 2 &
verify "a run goes on without a node that went down, from copies in memory" node_dies
verify "it has redone 2 steps at most" test "$(sed -n 's/.*"lost_steps":\([0-9]*\).*/\1/p' "$tmp/copied/metrics.jsonl")" -le 2
verify "it has the bits of one rank that nothing disturbed" same_run uncopied copied
everywhere() { on left "$@" && on far "$@"; }
verify "and leaves nothing in the memory of the others" nothing_left
finish
