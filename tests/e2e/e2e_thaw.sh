#!/bin/bash
# Freezing that is undone in mid-run: the same bits at any K and R, with and without the cache, and
# across a restart.
# group: slow, seconds: 15
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"
begin
as_users_wait

freezing_vit
adamw=(--set train.optimizer.kind=adamw --set train.optimizer.lr=0.002)
down=(--set 'freeze.table=[0,3,1,3,0]' --set train.epochs=5 "${adamw[@]}")
train vit one -n 1 --set cache.policy=off "${down[@]}"
verify "layers train again where the table goes down" has_shapes one "0=0:1:1 1=3:1:1 2=1:1:1 3=3:1:1 4=0:1:1 "
train vit two -n 2 --set 'elastic.stages=[2,1,2,2,1]' --set cache.policy=on "${down[@]}"
verify "weights, optimizer state and cache follow: the bits of one rank without a cache" same_run one two
verify "what the first thaw made stale was dropped" has two cache_hits -eq 0
verify "what it did not was used" has two cache_upgrades -gt 0

# A restart at a turn's end, where layers freeze, where they train again, and in mid-turn.
for at in 14 7 17; do
    train vit part-$at -n 2 --set cache.policy=on "${down[@]}" --steps $at
    cp "$tmp/part-$at.err" "$tmp/part-$at.first.err"
    timeout 60 "$elapse" train --resume "$tmp/part-$at" -n 1 --json >"$tmp/part-$at.json" 2>"$tmp/part-$at.err"
    verify "a run that was stopped after $at steps goes on with the bits of one that was not" same_run one part-$at
done

# Evidence: recording changes nothing, and is the same at any K and across a restart in mid-turn. The
# probe is the whole test set, so its last loss is that of the last evaluation.
record=("${down[@]}" --set freeze.record=true --set freeze.probe=50 --set data.valid=test --set train.eval_every_epochs=1)
train vit record-1 -n 1 --set cache.policy=off "${record[@]}"
train vit record-2 -n 2 --set 'elastic.stages=[1,2,1,2,2]' --set elastic.auto_dp=false "${record[@]}" # rank 1 joins later
verify "recording evidence changes no bit of the run" same_run one record-1
verify "evidence has the same bytes at K = 1 and 2" cmp "$tmp/record-1/evidence.json" "$tmp/record-2/evidence.json"
train vit record-cut -n 2 "${record[@]}" --steps 17
timeout 60 "$elapse" train --resume "$tmp/record-cut" -n 1 --json >"$tmp/record-cut.json" 2>"$tmp/record-cut.err"
verify "and in a run that was stopped in mid-turn" cmp "$tmp/record-1/evidence.json" "$tmp/record-cut/evidence.json"
evidence() { sed -n "s/.*\"$1\":[[:space:]]*\([-0-9.e]*\),.*/\1/p" "$tmp/record-1/evidence.json"; }
agree() {
    [ "$(evidence loss | wc -l)" = 5 ] && [ "$(evidence loss | tail -1 | cut -c1-12)" = "$(value record-1 eval_loss | cut -c1-12)" ] &&
        [ "$(evidence loss | head -4)" = "$(evidence loss_before | tail -4)" ] ||
        { paste <(evidence loss) <(evidence loss_before); value record-1 eval_loss; false; }
}
verify "the probe's losses are that of the evaluation, and those of the window before" agree
expect "a probe larger than the test set" 2 "freeze.probe of 51 samples exceeds the 50 test samples" \
    "$elapse" train "$tmp/vit.json" --out "$tmp/bad" "${record[@]}" --set freeze.probe=51

# The largest prefix is measured by forwards that begin behind it, with inputs that earlier ones have
# kept, those of record by whole forwards, but for one layer.
shares() { tr -d ' \n\t' <"$tmp/$1/evidence.json" | grep -o '"frozen":2,"share":[^}]*' | head -2; }
kept() { [ "$(shares "$1" | wc -l)" = 2 ] && [ "$(shares "$1")" = "$(shares "$2")" ] || { shares "$1"; shares "$2"; false; }; }
look=(--set train.epochs=3 --set freeze.probe=16 --set data.test_samples=16 --set data.valid=test "${adamw[@]}")
like vit gpt '"family": "gpt", "preset": "gpt2", "seq": 12, "hidden": 32, "heads": 2, "mlp": 64, "layers": 4, "vocab": 96' \
    '"kind": "synthetic", "train_samples": 64, "test_samples": 16'
looks_at() { # JOB BUDGET: one that neither fits nor is far, so that the second turn is measured too
    train $1 $1-whole -n 1 --set freeze.policy=none --set freeze.record=true "${look[@]}"
    for n in 2 1; do
        train $1 $1-kept-$n -n $n --set freeze.policy=safe --set freeze.max_loss=$2 "${look[@]}"
        verify "$1: kept inputs give the evidence of whole forwards at K = $n" kept $1-whole $1-kept-$n
    done
}
looks_at vit 0.01
looks_at gpt 2 # a tied table, which the head reads too

# Layers that freeze with the next turn train with a falling rate.
anneal=("${down[@]}" --set freeze.anneal=true)
train vit anneal-1 -n 1 "${anneal[@]}"
train vit anneal-2 -n 2 --set 'elastic.stages=[2,1,2,2,1]' "${anneal[@]}" --steps 17
differs() { ! same_run one anneal-1 >/dev/null && [ "$(losses one | head -1)" = "$(losses anneal-1 | head -1)" ]; }
verify "annealing changes the run, behind its first step" differs
timeout 60 "$elapse" train --resume "$tmp/anneal-2" -n 2 --json >"$tmp/anneal-2.json" 2>"$tmp/anneal-2.err"
verify "its bits are the same at K = 1 and 2 and over a restart in the turn that anneals" same_run anneal-1 anneal-2
expect "nothing is known ahead of plateau's decisions" 2 "freeze.anneal needs freeze.policy closed-form or table, .* got 'plateau'" \
    "$elapse" train "$tmp/vit.json" --out "$tmp/bad" --set freeze.policy=plateau --set freeze.anneal=true

# The policy safe: the same decisions and bits at K = 1 and 2 and across a restart, which fall within a
# window, and sim and freeze repeat them from the rows.
safe=(--set freeze.policy=safe --set freeze.max_loss=20 --set freeze.probe=50 --set data.valid=test --set train.epochs=9
    --set train.optimizer.kind=adamw --set train.optimizer.lr=0.002)
train vit safe-1 -n 1 --set cache.policy=off "${safe[@]}"
train vit safe-2 -n 2 --set 'elastic.stages=[2]' "${safe[@]}"
verify "safe freezes the same layers, to the same bits, at K = 1 and 2" same_run safe-1 safe-2
decided() {
    [ "$(value safe-1 freeze_cost_unit)" = '"points"' ] && grep -q '"reason":.*freeze [1-4]: costs .* points, at most' "$tmp/safe-1/summary.json" ||
        { grep freeze_ "$tmp/safe-1/summary.json"; false; }
}
verify "and says what that has cost" decided
verify "and that it has decided on test samples, as told" grep -q '"probe_source":.*"test"' "$tmp/safe-1/summary.json"
for at in 10 30; do
    train vit safe-cut -n 2 --set 'elastic.stages=[2]' "${safe[@]}" --steps $at
    timeout 60 "$elapse" train --resume "$tmp/safe-cut" -n 1 --override --set 'elastic.stages=[1]' --json >"$tmp/safe-cut.json" 2>"$tmp/safe-cut.err"
    verify "a run under safe that was stopped after $at steps goes on with the same bits" same_run safe-1 safe-cut
    rm -rf "$tmp/safe-cut"
done

# Behind the last step of a turn the window may still be due: in a checkpoint of that step, or where a signal has ended the
# passes over the probe.
train vit ends -n 2 --set 'elastic.stages=[2]' "${safe[@]}" --set train.checkpoint_every_steps=28 --set train.keep_checkpoints=9
rm -rf "$tmp"/ends/checkpoint-{56,63}
timeout 60 "$elapse" train --resume "$tmp/ends" -n 1 --override --set 'elastic.stages=[1]' --json >"$tmp/ends.json" 2>"$tmp/ends.err"
verify "a checkpoint of a turn's last step goes on with the window's end" same_run safe-1 ends
long=("${safe[@]}" --set freeze.probe=8000 --set data.test_samples=8000 --set train.epochs=3)
train vit long -n 1 --set cache.policy=off "${long[@]}"
in_probe() {
    local run=$! begin
    for _ in $(seq 400); do [ "$(grep -c '"loss"' "$tmp/long-cut/metrics.jsonl" 2>/dev/null)" = 7 ] && break; sleep 0.02; done
    pkill -TERM -P $run
    begin=$SECONDS
    wait $run
    [ $? -eq 143 ] && [ $((SECONDS - begin)) -le 10 ] && [ ! -e "$tmp/long-cut/evidence.json" ] && [ -e "$tmp/long-cut/checkpoint-7" ] ||
        { ls "$tmp/long-cut"; cat "$tmp/long-cut.err"; return 1; }
    timeout 60 "$elapse" train --resume "$tmp/long-cut" -n 2 --json >"$tmp/long-cut.json" 2>"$tmp/long-cut.err"
    same_run long long-cut
}
train vit long-cut -n 2 --set 'elastic.stages=[2]' "${long[@]}" &
verify "SIGTERM ends the passes over the probe, and a later call makes them" in_probe
frozen_of() { tr -d ' \n\t' <"$1" | grep -o '"frozen":\[[^]]*' | cut -d[ -f2; }
replayed() {
    "$elapse" freeze --evidence "$tmp/safe-1/evidence.json" --max-loss 20 --epochs 9 --json >"$tmp/freeze.json" &&
        "$elapse" sim "$tmp/vit.json" "${safe[@]}" --set "freeze.evidence=$tmp/safe-1/evidence.json" --json >"$tmp/sim.json" || return
    local real freeze sim
    real=$(shapes safe-1 | tr ' ' '\n' | sed -n 's/.*=\([0-9]*\):.*/\1/p' | paste -sd,)
    freeze=$(frozen_of "$tmp/freeze.json")
    sim=$(tr -d ' \n\t' <"$tmp/sim.json" | grep -o '"epoch":[0-9],"frozen_layers":[0-9]*' | cut -d: -f3 | head -9 | tr -dc '0-9\n' | paste -sd,)
    [ -n "$real" ] && [ "$real" = "$freeze" ] && [ "$real" = "$sim" ] || { echo "$real | $freeze | $sim"; false; }
}
verify "sim and freeze decide from the rows as the run did" replayed
expect "evidence from another model" 2 "evidence.json is of another model: layers is 4, the job's model has 3" \
    "$elapse" sim "$tmp/vit.json" "${safe[@]}" --set model.layers=3 --set 'freeze.table=[0]' --set "freeze.evidence=$tmp/safe-1/evidence.json"
held=(--set freeze.record=true --set freeze.probe=40 --set train.epochs=3)
train vit held-1 -n 1 "${held[@]}"
train vit held-2 -n 2 --set 'elastic.stages=[2]' "${held[@]}"
verify "without that evidence is measured on samples that are neither trained nor tested on" grep -q '"probe_source":.*"held out"' "$tmp/held-1/summary.json"
verify "which are the same at K = 2" cmp "$tmp/held-1/evidence.json" "$tmp/held-2/evidence.json"
train vit nothing -n 1 --set freeze.policy=safe --set freeze.max_loss=0 --set train.epochs=2
nothing() { [ ! -e "$tmp/nothing/evidence.json" ] && has_shapes nothing "0=0:1:1 1=0:1:1 "; }
verify "a budget of zero freezes nothing and measures nothing" nothing

# Undone by evidence: after two turns the learning rate is raised so far that what still trains brings
# nothing. The freeze of that moment is undone a turn later, in mid-run.
undo=("${safe[@]}" --set freeze.max_loss=10 --set freeze.alpha=1/4 --set train.epochs=8)
goes_on() { # RUN RANKS ARGS...
    local run=$1 n=$2
    shift 2
    timeout 60 "$elapse" train --resume "$tmp/$run" -n "$n" --json "$@" >"$tmp/$run.json" 2>"$tmp/$run.err"
}
hot=(--override --set train.optimizer.lr=0.3)
train vit undo-1 -n 1 --set cache.policy=off "${undo[@]}" --steps 14
goes_on undo-1 1 "${hot[@]}" --steps 16
undone() { has_shapes undo-1 "0=0:1:1 1=0:1:1 2=1:1:1 3=0:1:1 4=0:1:1 " && grep -q '"reason":.*undo 1, back to 0' "$tmp/undo-1/summary.json"; }
verify "a freeze is undone where the rest brings less than was due" undone
train vit undo-2 -n 2 --set 'elastic.stages=[2]' "${undo[@]}" --steps 14
goes_on undo-2 2 "${hot[@]}" --steps 16
verify "to the same bits at K = 2, with a cache" same_run undo-1 undo-2
train vit undo-cut -n 2 --set 'elastic.stages=[2]' "${undo[@]}" --steps 14
goes_on undo-cut 2 "${hot[@]}" --steps 7
goes_on undo-cut 1 --override --set 'elastic.stages=[1]' --steps 9
verify "and across a restart between the freeze and its undo" same_run undo-1 undo-cut

# A tied table, whose copy in the head anneals, freezes and thaws with the embedding.
for n in 1 2; do
    train gpt gpt-$n -n $n --set cache.policy=on "${anneal[@]}"
done
verify "a tied table trains again" same_run gpt-1 gpt-2

# A head that shares the table goes on alone with one of its own, which begins as the shared one.
alone=(--set 'freeze.table=[0,0,1,4]' "${adamw[@]}" --set freeze.head=alone)
train gpt alone-1 -n 1 --set cache.policy=off "${alone[@]}"
train gpt alone-2 -n 2 --set 'elastic.stages=[2,2,1,2]' --set elastic.auto_dp=false --set cache.policy=on "${alone[@]}"
verify "the head goes on alone to the same bits at K = 1 and 2, with and without a cache" same_run alone-1 alone-2
train gpt alone-shared -n 1 "${alone[@]}" --set freeze.head=frozen
goes_alone() { # the same run up to the freeze at step 4, another one behind it
    [ "$(losses alone-1 | head -5)" = "$(losses alone-shared | head -5)" ] &&
        [ "$(losses alone-1 | sed -n 6p)" != "$(losses alone-shared | sed -n 6p)" ]
}
verify "and differs from the shared head behind the first step after the freeze" goes_alone
for at in 4 5; do # before the head has left, after it
    train gpt alone-cut -n 2 --set 'elastic.stages=[2,2,2,2]' --set cache.policy=on "${alone[@]}" --steps $at
    goes_on alone-cut 1 --override --set 'elastic.stages=[1]'
    verify "a run that was stopped after $at steps goes on with the same bits" same_run alone-1 alone-cut
    rm -rf "$tmp/alone-cut"
done
train gpt alone-first -n 2 --set 'elastic.stages=[2]' "${alone[@]}" --set 'freeze.table=[1]'
train gpt shared-first -n 1 "${alone[@]}" --set 'freeze.table=[1]' --set freeze.head=frozen
same_start() { [ "$(losses "$1" | head -1)" = "$(losses "$2" | head -1)" ] && ! same_run "$1" "$2" >/dev/null; }
verify "in a run that begins with a frozen prefix the two tables begin as one" same_start alone-first shared-first
evaluated() { # of a checkpoint, and of what is exported from it
    "$elapse" eval "$tmp/alone-1" --json >"$tmp/eval.json" && "$elapse" export "$tmp/alone-1" -o "$tmp/hf" >"$tmp/out" &&
        "$elapse" eval "$tmp/hf" "$tmp/gpt.json" --set model="$tmp/hf/config.json" --set model.seq=12 --json >"$tmp/hf.json" || return
    local want got
    want=$(value alone-1 eval_loss)
    for got in eval hf; do grep -q "\"eval_loss\":[[:space:]]*$want" "$tmp/$got.json" || { cat "$tmp/$got.json"; return 1; }; done
}
verify "eval and export know the head by its own table" evaluated
train gpt alone-bytes -n 1 "${alone[@]}" --set model.vocab=256
likeliest() { "$elapse" generate "$1" --prompt AB --temperature 0 --max-tokens 8 --json | grep -o '"tokens":.*"logprobs":[^]]*'; }
generated() { "$elapse" export "$tmp/alone-bytes" -o "$tmp/bytes" >"$tmp/out" && likeliest "$tmp/alone-bytes" >"$tmp/by-run" && likeliest "$tmp/bytes" | diff "$tmp/by-run" -; }
verify "generate, too" generated
expect "a checkpoint whose head has a table, for a model whose head has none" 2 \
    "^hint: its head has a table of its own: elapse export .* --init DIR --set model=DIR/config.json" \
    "$elapse" train "$tmp/gpt.json" --no-measure --out "$tmp/bad" --init "$tmp/alone-1"
for from in hf alone-1; do
    train gpt on-$from -n 1 --init "$tmp/$from" --set model="$tmp/hf/config.json" --set model.seq=12 --set freeze.policy=none
done
verify "an export trains on as the run does" same_run on-hf on-alone-1

# From a file that has one table, a run whose prefix is frozen from its first step on.
check "a file with one table" "$elapse" export "$tmp/alone-shared" -o "$tmp/one-table"
for n in 1 2; do
    train gpt from-$n -n $n --init "$tmp/one-table" "${alone[@]}" --set 'freeze.table=[1]' --set 'elastic.stages=['$n']'
done
train gpt from-shared -n 1 --init "$tmp/one-table" "${alone[@]}" --set 'freeze.table=[1]' --set freeze.head=frozen
verify "both tables begin as the file's" same_start from-1 from-shared
verify "and train to the same bits at K = 1 and 2" same_run from-1 from-2

like vit mlm '"family": "bert", "preset": "bert-base", "task": "mlm", "seq": 12, "hidden": 32, "heads": 2, "mlp": 64, "layers": 4, "vocab": 96' \
    '"kind": "synthetic", "train_samples": 64, "test_samples": 16'
train mlm masked -n 1 "${alone[@]}"
twice() { # transformers adds the bias beside the head's own table
    "$elapse" export "$tmp/masked" -o "$tmp/hf-mlm" >"$tmp/out" && python3 - "$tmp/hf-mlm/model.safetensors" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head, body = json.loads(data[8:8 + size]), data[8 + size:]
a, b = (body[slice(*head["cls.predictions." + name]["data_offsets"])] for name in ("bias", "decoder.bias"))
sys.exit(a != b or len(a) != 4 * 96 or not any(a) or "cls.predictions.decoder.weight" not in head)
PY
}
verify "a masked model's export has the bias of its head under both names" twice
train gpt alone-anneal-1 -n 1 "${alone[@]}" --set freeze.anneal=true
train gpt alone-anneal-2 -n 2 --set 'elastic.stages=[2]' "${alone[@]}" --set freeze.anneal=true
verify "and annealing before it gives the same bits at K = 1 and 2" same_run alone-anneal-1 alone-anneal-2

finish
