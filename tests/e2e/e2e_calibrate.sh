#!/bin/bash
# tests/e2e/e2e_calibrate.sh - `elapse calibrate` from outside: measured steps of every form make a
# calibration, which plan and sim take and name.
. "$(dirname "$0")/lib.sh"
begin
export ELAPSE_DB=$tmp/store.db
step=(--model llama2-7b --cluster a100-1x8 --replicas 2 --tensor 4 --batch 8 --microbatches 8)
plain=$("$elapse" sim --step "${step[@]}" --json | grep -o '"step_ns":[0-9]*' | cut -d: -f2)
slow=$((plain * 11 / 10))ns

expect "one measured step" 0 'compute .* within' \
    "$elapse" calibrate --step "${step[*]}" --measured $slow -o one
expect "it prints what was known and what the row says" 0 'before any row: compute within 18.7 %' \
    "$elapse" calibrate --step "${step[*]}" --measured $slow -o said
expect "and where one row may not move it further" 0 'compute is as far from 1 as 1 row may move it: add a row' \
    "$elapse" calibrate --step "${step[*]}" --measured $((plain * 3))ns -o far
expect "in JSON" 0 '"prior":\{"compute":.*"at_bound":\{"compute":true.*"measured_over_computed":\[3' \
    "$elapse" calibrate --step "${step[*]}" --measured $((plain * 3))ns -o far --json
check "intervals begin at how far rows of dense models lie apart" bash -c '"$0" calibrate --step "$1" --measured "$2" -o said --json |
    python3 -c "import json, sys; sys.exit(not 0.069 < json.load(sys.stdin)[\"noise\"] < 0.08)"' "$elapse" "${step[*]}" "${plain}ns"
expect "which says what it does not determine" 0 'inside        1, not determined' "$elapse" calibrate --list
"$elapse" sim --step "${step[@]}" --calibration one --json >"$tmp/sim.json"
expect "sim says so" 0 '"calibration":"one"' cat "$tmp/sim.json"
check "sim predicts the measured step within 3 %, and an interval around it" python3 - "$tmp/sim.json" $plain <<'EOF'
import json, sys
got, plain = json.load(open(sys.argv[1])), float(sys.argv[2])
low, high = got["predicted_interval_ns"]
sys.exit(not (abs(got["step_ns"] / (1.1 * plain) - 1) < 0.03 and low < 1.1 * plain < high))
EOF
expect "a step without a framework says whose kernels it has, and what others take" 0 \
    "framework: none named, taken are megatron-te's kernels, .*; .* to .* over .*deepspeed" "$elapse" sim --step "${step[@]}"
check "one with a framework does not" bash -c '! "$@" | grep -q "framework:"' - "$elapse" sim --step "${step[@]}" --framework fsdp
expect "people read it too" 0 'with a probability of 80 %' \
    "$elapse" sim --step "${step[@]}" --calibration one

check "no word where the rows are of this device, format and framework" \
    bash -c '! grep -q "may not hold" "$1"' - "$tmp/sim.json"
expect "factors of another framework are named" 0 "'one' was fitted on a100, fp32, auto; .* a100, fp32, fsdp" \
    "$elapse" sim --step "${step[@]}" --framework fsdp --calibration one
expect "of another device, in JSON too" 0 '"cost_note":"[^"]*calibration .*for h100, fp32, auto"' \
    "$elapse" sim --step "${step[@]/a100-1x8/h100-1x8}" --calibration one --json

cat >"$tmp/job.json" <<'EOF'
{"name": "calibrated", "model": "llama2-7b", "cluster": "a100-1x8",
 "train": {"dtype": "bf16", "batch": {"per_pipeline": 8}, "optimizer": {"kind": "adamw"}},
 "pipeline": {"tensor": 4, "num_stages": 1, "num_replicas": 2, "num_microbatches": 8},
 "cost": {"source": "kernels", "calibration": "one"}}
EOF
expect "plan takes the job's calibration" 0 '"calibration":"one".*"predicted_interval_ns":\[' \
    "$elapse" plan "$tmp/job.json" --json
expect "sim of a job too" 0 "calibrated by 'one'" "$elapse" sim "$tmp/job.json" --step
expect "a job is a measured step" 0 'compute' \
    "$elapse" calibrate --step "$tmp/job.json --set cost.calibration=''" --measured 9s -o job
expect "a name that the store lacks" 1 "no calibration 'onee' in store .*, nearest is 'one'" \
    "$elapse" plan "$tmp/job.json" --calibration onee
expect "measured times are not scaled" 2 "calibration 'one' scales kernels" \
    "$elapse" sim --step --model uniform:layers=4,fwd=1ms --calibration one

printf 'replicas,tensor,measured,peak\n2,4,%s,50GiB\n4,2,%s,\n8,1,%s,\n' $slow $slow $slow >"$tmp/rows.csv"
common="--model llama2-7b --cluster a100-1x8 --batch 8 --microbatches 8"
expect "a table of measured steps" 0 '"num_rows":3,"num_peaks":1,"factors":\{"compute":' \
    "$elapse" calibrate --step "$common" --csv "$tmp/rows.csv" -o table --json
printf 'model,cluster,batch,microbatches,tensor,replicas,measured\nllama2-7b,a100-1x8,8,8,2,4,%s\n' $slow >"$tmp/judge.csv"
expect "judged by other rows" 0 'rows that were not fitted \(1\)' \
    "$elapse" calibrate --step "${step[*]}" --measured $slow --judge "$tmp/judge.csv" -o judged
printf 'cluster,measured\na100-1x8,%s\nh100-1x8,%s\n' $slow $slow >"$tmp/two.csv"
expect "rows of two devices" 2 'is of a100, fp32, auto, .* of h100, fp32, auto: calibrate them apart' \
    "$elapse" calibrate --step "--model llama2-7b --replicas 2 --tensor 4 --batch 8 --microbatches 8" --csv "$tmp/two.csv" -o two
peak=$("$elapse" sim --step "${step[@]}" --json | grep -o '"peak_bytes":[0-9]*' | head -1 | cut -d: -f2)
context=$((867 << 20))
more=$((context + (peak - context) * 6 / 5))
expect "a peak that is no more than the driver's" 2 'is no more than the context' \
    "$elapse" calibrate --step "${step[*]}" --measured $slow --peak 800MiB -o peak
"$elapse" calibrate --step "${step[*]}" --measured $slow --peak ${more}B -o peak --json >"$tmp/peak.json"
"$elapse" sim --step "${step[@]}" --calibration peak --json >"$tmp/sim.json"
check "sim takes four fifths of a measured peak of 1.2 times: 0.1 before it, 0.05 a peak" python3 - "$tmp/sim.json" $context $peak <<'EOF'
import json, sys
got, context, peak = json.load(open(sys.argv[1]))["devices"][0]["peak_bytes"], int(sys.argv[2]), int(sys.argv[3])
sys.exit(abs(got / (context + (peak - context) * 1.2 ** 0.8) - 1) > 0.002)
EOF
small='{"kind":"a100","nodes":1,"devices_per_node":8,"mem":"'$(((peak + more) / 2 >> 20))'MiB"}'
expect "a plan fits by its computed memory" 0 '"recompute":"never"' \
    "$elapse" plan "$tmp/job.json" --set cost.calibration= --set "cluster=$small" --json
expect "by its measured memory it runs layers again" 0 '"recompute":"layer"' \
    "$elapse" plan "$tmp/job.json" --set cost.calibration=peak --set "cluster=$small" --json
cat >"$tmp/trace.json" <<'EOF'
{"traceEvents": [{"name": "ProfilerStep#1", "dur": 8000000.0}, {"name": "aten::mm", "dur": 5.0},
                 {"name": "ProfilerStep#2", "dur": 9000000.0}, {"name": "ProfilerStep#3", "dur": 8500000.0}]}
EOF
expect "a trace of torch.profiler" 0 'compute' \
    "$elapse" calibrate --step "${step[*]}" --measured "$tmp/trace.json" -o trace
sed 's/\[{/[{"name": "ProfilerStep#0", "dur": 90000000.0}, {/' "$tmp/trace.json" >"$tmp/first.json"
expect "the first step of a trace is left out" 0 'its first step is left out' \
    "$elapse" calibrate --step "${step[*]}" --measured "$tmp/first.json" -o first
factors() { "$elapse" calibrate --step "${step[*]}" --measured "$tmp/$1$([ -e "$tmp/$1.json" ] && echo .json)" -o "${1%%.*}" --json 2>/dev/null | grep -o '"factors":{[^}]*}'; }
check "and its factors are those without it" test -n "$(factors trace)" -a "$(factors trace)" = "$(factors first)"
echo '{"traceEvents": []}' >"$tmp/empty.json"
expect "a trace without steps" 2 "ProfilerStep" \
    "$elapse" calibrate --step "${step[*]}" --measured "$tmp/empty.json" -o trace
gzip -k "$tmp/trace.json"
check "a packed trace is that trace" test "$(factors trace)" = "$(factors trace.json.gz)"
head -c 60 "$tmp/trace.json.gz" >"$tmp/cut.json.gz"
expect "a packed trace that is cut" 2 'cut.json.gz: not a whole gzip file' \
    "$elapse" calibrate --step "${step[*]}" --measured "$tmp/cut.json.gz" -o x
# Ranges of NVTX: 4 steps a begin of 8.5 s apart, between them and inside them what is no step.
python3 - "$tmp" <<'EOF'
import sqlite3, sys
def export(name, rows, events="NVTX_EVENTS", text=True):
    db = sqlite3.connect(f"{sys.argv[1]}/{name}.sqlite")
    db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
    db.execute(f'CREATE TABLE {events} (start INT NOT NULL, "end" INT, eventType INT NOT NULL, text TEXT, textId INT, globalTid INT)')
    for i, (kind, label, begin, end, thread) in enumerate(rows):
        db.execute("INSERT INTO StringIds VALUES (?, ?)", (i, label))
        db.execute(f"INSERT INTO {events} VALUES (?, ?, ?, ?, ?, ?)", (begin, end, kind, label if text else None, None if text else i, thread))
    db.commit()
s = 10**9
steps = [(59, f"iteration {i}", b, b + 8 * s, 7) for i, b in enumerate([0, 20 * s, 28 * s, 37 * s, int(45.5 * s), 54 * s])]
inside = [(59, "forward_step", b + j * s, b + (j + 1) * s, 7) for _, _, b, _, _ in steps for j in range(8)] + \
    [(59, "optimizer_step", b + 7 * s, b + 8 * s, 8) for _, _, b, _, _ in steps] + [(34, "step mark", 5, None, 7), (60, "data", 0, 60 * s, 7)]
export("text", steps + inside)
export("ids", inside + steps, text=False)
export("none", inside[:48])
export("other", steps, events="OTHER_EVENTS")
EOF

check "an export of Nsight Systems has the distance of its steps" test "$(factors text.sqlite)" = "$(factors trace)"
check "and its texts may be ids" test "$(factors ids.sqlite)" = "$(factors trace)"
expect "an export without steps" 2 "no range of NVTX has 'step' or 'iter'" \
    "$elapse" calibrate --step "${step[*]}" --measured "$tmp/none.sqlite" -o x
expect "an export without NVTX" 2 'no ranges of NVTX as Nsight Systems exports them' \
    "$elapse" calibrate --step "${step[*]}" --measured "$tmp/other.sqlite" -o x
echo text >"$tmp/text.db.sqlite"
expect "a text is no export" 2 'text.db.sqlite' \
    "$elapse" calibrate --step "${step[*]}" --measured "$tmp/text.db.sqlite" -o x
expect "as many measured steps as steps" 2 '--step is given 1 times, --measured 2 times' \
    "$elapse" calibrate --step "${step[*]}" --measured 1s --measured 2s -o x
printf 'replicas,tensor\n2,4\n' >"$tmp/none.csv"
expect "a table without times" 2 "the header needs 'measured'" \
    "$elapse" calibrate --step "$common" --csv "$tmp/none.csv" -o x
printf 'replicas,wheels,measured\n2,4,1s\n' >"$tmp/odd.csv"
expect "a table with an unknown setting" 2 'odd.csv:2: .*wheels' \
    "$elapse" calibrate --step "$common" --csv "$tmp/odd.csv" -o x
expect "a name is needed" 2 'NAME is missing' "$elapse" calibrate --step "${step[*]}" --measured 1s
check "removed" "$elapse" calibrate --remove one
expect "and gone" 1 "no calibration 'one'" "$elapse" calibrate --remove one
expect "an efficiency above 1" 0 'at 1.25 of their speed' \
    "$elapse" sim --step "${step[@]}" --cost kernels --efficiency 1.25
# ZeRO-3 on one GPU: 8 micro-batches, 8 items of layers forward and backward, 1.7 ms of hooks a pass, and small layers. Embedding,
# norm and head are items too.
alone=(--model llama:layers=4,hidden=64,heads=4,mlp=176,vocab=256,seq=32 --cluster a100-1x1 --microbatches 8 --set train.dtype=bf16)
hooked() { "$elapse" sim --step "${alone[@]}" --framework deepspeed --set pipeline.shard=weights --recompute $1 ${2:+--recompute-layers $2} --json | grep -o '"step_ns":[0-9]*' | cut -d: -f2; }
never=$(hooked never) layer=$(hooked layer 4)
check "the hooks of ZeRO-3 on one GPU are what a step of small layers takes" \
    test "$never" -gt $((8 * 2 * 8 * 1700000)) -a "$never" -lt $((8 * 2 * 11 * 1700000 * 11 / 10))
check "layers that run again are fetched once more" \
    test $((layer - never)) -gt $((8 * 8 * 1700000 * 99 / 100)) -a $((layer - never)) -lt $((8 * 8 * 1700000 * 101 / 100))
expect "elsewhere a shard of one replica divides nothing" 1 'pipeline.shard weights divides nothing' \
    "$elapse" sim --step "${alone[@]}" --framework fsdp --set pipeline.shard=weights
expect "a model's text may name any data type" 0 '^dtype fp8' "$elapse" sim --step --model llama3-8b:layers=2,dtype=fp8 --cluster h100-1x1
expect "a norm is validated where there is one" 2 "train.post_validation needs train.clip_norm" \
    "$elapse" sim --step "${alone[@]}" --set train.post_validation=true
expect "and the hint says what sets one" 2 "--set train.clip_norm=1" "$elapse" sim --step "${alone[@]}" --set train.post_validation=true
expect "keys of a model after a comma" 0 "dtype fp8" "$elapse" sim --step --model gpt3-1.3b,dtype=fp8 --cluster h100-1x1
expect "attention in fp8 needs its units" 1 "'a100' has no fp8 units" \
    "$elapse" sim --step "${alone[@]}" --set train.fp8_attention=true
finish
