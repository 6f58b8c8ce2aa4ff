#!/bin/bash
# Slurm for real: two slurmd on this machine, in a cluster of the test's own. The job of
# examples/slurm trains over both, is stopped by SIGTERM, requeued, and goes on with the same bits.
# alone: it has daemons of its own, and times
# group: slow
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin
PATH=$PATH:/usr/sbin
for tool in munged slurmctld slurmd sbatch; do
    command -v $tool >/dev/null && continue
    skip "Slurm" "no '$tool' here (Debian: slurm-wlm, munge)"
    finish
done
if [ "$(id -u)" -ne 0 ]; then
    skip "Slurm" "its daemons want root here"
    finish
fi
[ -z "${ELAPSE_MPIRUN:-}" ] || [[ $ELAPSE_MPIRUN == mpirun* ]] || { skip "Slurm" "tried with Open MPI's mpirun only"; finish; }

d=$tmp/slurm daemons=
mkdir -p "$d/state" "$d/munge"
chmod 711 "$tmp" "$d" "$d/munge"
port=$((20000 + $$ % 10000))
cat >"$d/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$(hostname)
SlurmUser=root
SlurmctldPort=$port
AuthInfo=socket=$d/munge/socket
StateSaveLocation=$d/state
SlurmdSpoolDir=$d/spool-%n
SlurmctldPidFile=$d/ctld.pid
SlurmdPidFile=$d/slurmd-%n.pid
SlurmctldLogFile=$d/ctld.log
SlurmdLogFile=$d/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=left NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2
NodeName=right NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2
PartitionName=all Nodes=left,right Default=YES State=UP
CONF
export SLURM_CONF=$d/slurm.conf
head -c 1024 /dev/urandom >"$d/munge/key" && chmod 600 "$d/munge/key"
stop_slurm() {
    for pid in "$d"/*.pid "$d"/munge/pid; do [ -s "$pid" ] && kill "$(cat "$pid")" 2>/dev/null; done
    sleep 1
    rm -rf "$tmp"
}
trap stop_slurm EXIT
munged --key-file="$d/munge/key" --socket="$d/munge/socket" --pid-file="$d/munge/pid" --log-file="$d/munge/log" \
    --seed-file="$d/munge/seed" --force >"$d/munge.out" 2>&1
slurmctld && slurmd -N left && slurmd -N right
comes_up() {
    for _ in $(seq 100); do [ "$(sinfo -ho '%D %t' 2>/dev/null)" = "2 idle" ] && return; sleep 0.1; done
    sinfo
    tail -n 5 "$d"/*.log
    false
}
verify "a cluster of two nodes comes up" comes_up
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
