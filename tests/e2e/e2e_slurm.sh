#!/bin/bash
# Slurm for real: two slurmd on this machine, in a cluster of the test's own. The job of
# examples/slurm trains over both, is stopped by SIGTERM, requeued, and goes on with the same bits.
# alone: it has daemons of its own, and times
# group: slow
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin
. "$(dirname "$0")/slurm.sh"
slurm_here || { skip "Slurm" "$why_not"; finish; }
[ -z "${ELAPSE_MPIRUN:-}" ] || [[ $ELAPSE_MPIRUN == mpirun* ]] || { skip "Slurm" "tried with Open MPI's mpirun only"; finish; }

verify "a cluster of two nodes comes up" slurm_up left right
[ ! -e "$tmp/.checks_failed" ] || finish

freezing_vit
sed -i 's/"epochs": 4/"epochs": 40/' "$tmp/vit.json"
train vit whole -n 2
cp "$PWD/examples/slurm/train.sh" "$tmp/train.sh"
requeued() {
    local id
    id=$(cd "$tmp" && ELAPSE=$(readlink -f "$(dirname "$elapse")")/elapse JOB=$tmp/vit.json OUT=$tmp/queued \
        sbatch --parsable --output="$tmp/job.out" train.sh) || return
    for _ in $(seq 600); do [ -s "$tmp/queued/metrics.jsonl" ] && break; sleep 0.05; done
    scancel --batch --signal=TERM "$id"
    for _ in $(seq 300); do [ "$(squeue -ho %T -j "$id")" = PENDING ] && break; sleep 0.1; done
    ls "$tmp"/queued/checkpoint-*/manifest.json || { cat "$tmp/job.out"; return 1; }
    for _ in $(seq 600); do # Slurm would wait for two minutes
        scontrol update JobId="$id" StartTime=now 2>/dev/null
        [ -n "$(squeue -ho %T -j "$id" 2>/dev/null)" ] || break
        sleep 0.2
    done
    grep -q 'stopped by a signal' "$tmp/job.out" || { cat "$tmp/job.out"; return 1; }
}
verify "SIGTERM saves a checkpoint and requeues the job" requeued
verify "which goes on by itself, with the same bits" same_run whole queued
verify "over both nodes" grep -q '"node_ranks":[[:space:]]*\[1,[[:space:]]*1\]' <(tr -d ' \t\n' <"$tmp/queued/summary.json")
finish
