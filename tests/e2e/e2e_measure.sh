#!/bin/bash
# tests/e2e/e2e_measure.sh - what `elapse train` measures before a long run on a machine without a profile.
# group: slow, seconds: 12
. "$(dirname "$0")/lib.sh"
begin
[ -x "$elapse-exec" ] || { skip "train measures first" "no elapse-exec"; finish; }
cat >"$tmp/job.json" <<'JSON'
{"name": "long", "model": "vit-tiny:image=32,patch=8,classes=10,layers=2",
 "data": {"train_samples": 512}, "train": {"epochs": 100000, "batch": {"global": 64}}}
JSON

# trains NAME ARGS...: the first lines of a run, which is then stopped
trains() {
    local name=$1
    shift
    "$elapse" train "$tmp/job.json" -n 2 --threads 1 --out "$tmp/$name" -v "$@" >"$tmp/$name.out" 2>"$tmp/$name.err" </dev/null &
    for ((i = 0; i < 600; i++)); do
        ! grep -q '^step\|^elapse:' "$tmp/$name.err" || break
        sleep 0.1
    done
    kill -INT $!
    wait $!
    grep -q '^step 1/' "$tmp/$name.err"
}
profiled() { "$elapse" profiles list | grep -q "^cpu-.*$(hostname)"; }

verify "a run of its first machine starts without measuring where that is said" trains unmeasured --no-measure
! grep -q 'profile of' "$tmp/unmeasured.err" && ! profiled
report $? "then nothing is measured and nothing kept" <"$tmp/unmeasured.err"
verify "a long run starts" trains first
if grep -q '^note: this machine had no profile of model .vit-tiny.: measured for [0-9.]* s and kept$' "$tmp/first.err"; then
    profiled
    report $? "what was measured is in the store" < <("$elapse" profiles list)
    verify "the next run starts" trains second
    ! grep -q 'profile of' "$tmp/second.err"
    report $? "the next run has that profile" <"$tmp/second.err"
    # Of 1 to 32 samples times are known; 64 follow from them, unless they are measured.
    verify "a run whose micro-batches are larger starts" trains larger --set train.batch.micro=64 --set train.batch.global=128
    grep -Eq "^note: (this machine had no profile of model 'vit-tiny' at micro-batches of 64: measured for [0-9.]* s and kept|no profile of this machine at micro-batches of 64: it is too busy.*)$" "$tmp/larger.err"
    report $? "and measures what its times would follow from" <"$tmp/larger.err"
    if grep -q 'and kept$' "$tmp/larger.err"; then
        verify "the next run of such micro-batches starts" trains again --set train.batch.micro=64 --set train.batch.global=128
        ! grep -q 'profile of' "$tmp/again.err"
        report $? "and finds them measured" <"$tmp/again.err"
    fi
else
    # Other programs may leave no two repeats alike.
    grep -q '^note: no profile of this machine: it is too busy to be measured, repeats of a layer spread by [0-9]* %$' "$tmp/first.err" && ! profiled
    report $? "a busy machine is not measured" <"$tmp/first.err"
fi
profiled && before=yes || before=no
expect "a short run starts" 0 '^(step|note: train|$)' "$elapse" train "$tmp/job.json" -n 2 --threads 1 --steps 2 --no-eval \
    --set model=vit-tiny:image=32,patch=8,classes=10,layers=1 --out "$tmp/short" -v
! grep -q 'profile of' "$tmp/expect.err" && [ $before = "$(profiled && echo yes || echo no)" ]
report $? "and is not measured" <"$tmp/expect.err"
finish
