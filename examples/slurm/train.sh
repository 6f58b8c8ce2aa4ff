#!/bin/bash
#SBATCH --job-name=elapse
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --time=01:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@60
# sbatch examples/slurm/train.sh: train JOB into OUT. 60 s before the time limit Slurm sends SIGTERM to this
# shell: the run writes a checkpoint, the job goes back into the queue, and goes on when it starts again.
#   JOB      the job file (job.json)     OUT  the run's folder (run), on all nodes at the same path
#   ELAPSE   the program (elapse)
out=${OUT:-run}
if ls "$out"/checkpoint-*/manifest.json >/dev/null 2>&1; then
    args=(--resume "$out")
else
    args=("${JOB:-job.json}" --out "$out")
fi
"${ELAPSE:-elapse}" train "${args[@]}" -n "$SLURM_NTASKS" &
train=$!
trap 'kill -TERM $train' TERM
wait $train
rc=$?
if [ $rc -gt 128 ] && kill -0 $train 2>/dev/null; then # the signal has ended wait, not the run
    wait $train
    rc=$?
fi
[ $rc -ne 143 ] || scontrol requeue "$SLURM_JOB_ID"
exit $rc
