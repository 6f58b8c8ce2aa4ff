# tests/e2e/slurm.sh - sourced after lib.sh: a Slurm cluster of the test's own on this machine.
#
#   slurm_here          whether this machine can; else $why_not says what is missing
#   slurm_up NODE...    start munged, slurmctld and a slurmd for each node (2 processors); sets SLURM_CONF.
#                       All end with the script.
PATH=$PATH:/usr/sbin
why_not=

slurm_here() {
    local tool
    for tool in munged slurmctld slurmd sbatch; do
        command -v $tool >/dev/null || { why_not="no '$tool' here (Debian: slurm-wlm, munge)"; return 1; }
    done
    [ "$(id -u)" -eq 0 ] || { why_not="its daemons want root here"; return 1; }
}

slurm_stop() {
    for pid in "$slurm"/*.pid "$slurm"/munge/pid; do [ -s "$pid" ] && kill "$(cat "$pid")" 2>/dev/null; done
    sleep 1
    rm -rf "$tmp"
}

slurm_up() {
    local port=$((20000 + $$ % 10000)) node n=0
    slurm=$tmp/slurm
    mkdir -p "$slurm/state" "$slurm/munge"
    chmod 711 "$tmp" "$slurm" "$slurm/munge"
    cat >"$slurm/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
SlurmctldPort=$port
AuthInfo=socket=$slurm/munge/socket
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool-%n
SlurmctldPidFile=$slurm/ctld.pid
SlurmdPidFile=$slurm/slurmd-%n.pid
SlurmctldLogFile=$slurm/ctld.log
SlurmdLogFile=$slurm/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PartitionName=all Nodes=$(tr ' ' , <<<"$*") Default=YES State=UP
CONF
    for node in "$@"; do
        echo "NodeName=$node NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$((port + (n += 1))) CPUs=2"
    done >>"$slurm/slurm.conf"
    export SLURM_CONF=$slurm/slurm.conf
    head -c 1024 /dev/urandom >"$slurm/munge/key" && chmod 600 "$slurm/munge/key"
    trap slurm_stop EXIT
    munged --key-file="$slurm/munge/key" --socket="$slurm/munge/socket" --pid-file="$slurm/munge/pid" \
        --log-file="$slurm/munge/log" --seed-file="$slurm/munge/seed" --force >"$slurm/munge.out" 2>&1
    slurmctld || return
    for node in "$@"; do slurmd -N "$node" || return; done
    for _ in $(seq 200); do [ "$(sinfo -ho '%D %t' 2>/dev/null)" = "$# idle" ] && return; sleep 0.1; done
    sinfo
    tail -n 5 "$slurm"/*.log
    false
}
