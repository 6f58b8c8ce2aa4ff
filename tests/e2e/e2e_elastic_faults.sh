#!/bin/bash
# tests/e2e/e2e_elastic_faults.sh - ranks that fail while a change of plan moves weights, or in a step: all end within 10 s (longer on a busy machine),
# one line says why, and the run goes on from its last checkpoint with the same bits.
# alone: ends of runs are timed
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin
as_users_wait
faults=$(dirname "$(readlink -f "$elapse")")/../tests/fail_mpi.so
[ -e "$faults" ] || { skip "a rank that fails while weights move" "make tests builds what makes it fail; not with SAN"; finish; }

freezing_vit
train vit whole -n 1 --set cache.policy=off
# How long a run of four ranks takes that nothing ends.
like_begin=$SECONDS
train vit paced -n 4 --set 'elastic.stages=[3,2,2,1]'
like=$((SECONDS - like_begin))
# A rank that fails while weights move: the others, who wait for them, end soon, one line says why, and the run
# goes on from the last checkpoint.
moving=(-n 4 --set 'elastic.stages=[3,2,2,1]' --set train.checkpoint_every_steps=5)
fails_in_move() { # FAULT RANK PATTERN
    local begin=$SECONDS
    FAIL_MPI=$1 FAIL_MPI_RANK=$2 LD_PRELOAD=$faults train vit "moving-$1" "${moving[@]}"
    [ $? -eq 3 ] && within 10 $begin $like && [ "$(grep -c '^elapse: ' "$tmp/moving-$1.err")" = 1 ] && says "moving-$1" "^elapse: $3" ||
        { cat "$tmp/moving-$1.err"; false; }
}
# Nor does it give back what messages are under way in: they may arrive until it has ended.
fails_in_step() { # N RANK COMMAND...
    local fault=step@$1 rank=$2 rc
    shift 2
    FAIL_MPI=$fault FAIL_MPI_RANK=$rank LD_PRELOAD=$faults timeout $((100 + 10 * like)) "$@" >"$tmp/step.out" 2>"$tmp/step.err" </dev/null
    rc=$?
    [ $rc -eq 3 ] && [ "$(grep -vc "^note: " "$tmp/step.err")" = 1 ] && grep -q "^elapse: rank $rank: MPI_Isend.* failed" "$tmp/step.err" ||
        { echo "exit $rc"; cat "$tmp/step.err"; false; }
}
goes_on() { train vit "moving-$1" "${moving[@]}" --resume "$tmp/moving-$1" && same_run whole "moving-$1"; }
verify "a rank that cannot receive what moves ends the run" fails_in_move recv@1 1 'rank 1: MPI_Irecv.* failed'
verify "so does one that cannot send on" fails_in_move send@3 0 'rank 0: MPI_Isend.* failed'
verify "so does one that is killed there" fails_in_move die@3 1 'a rank of train was ended by signal 9'
verify "and says how it goes on" grep -q '^hint: continue with: elapse train --resume .*/moving-die@3 -n [0-9]' "$tmp/moving-die@3.err"
verify "a rank that cannot send in a step keeps what others send to it" fails_in_step 40 1 "$elapse" train "$tmp/vit.json" \
    --out "$tmp/step" "${moving[@]}"
like vit gpt '"family": "gpt", "preset": "gpt2", "seq": 16, "hidden": 32, "heads": 2, "mlp": 64, "layers": 4, "vocab": 300' \
    '"kind": "synthetic", "train_samples": 200, "test_samples": 50'
verify "so it does where a tied table is exchanged" fails_in_step 9 1 "$elapse" train "$tmp/gpt.json" --out "$tmp/tied" -n 2 --no-eval \
    --set pipeline.num_stages=2
verify "and in an evaluation" fails_in_step 2 1 "$elapse" eval "$tmp/whole" "$tmp/vit.json" -n 4 --set pipeline.num_stages=4
for fault in recv@1 send@3 die@3; do
    verify "$fault: the last checkpoint is whole" goes_on $fault
done
finish
