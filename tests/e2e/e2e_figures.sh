#!/bin/bash
# tests/e2e/e2e_figures.sh - every kind of figure and the report, drawn from small jobs and runs: the file is whole, and
# it says what it shows.
# seconds: 20
. "$(dirname "$0")/lib.sh"
begin
command -v gnuplot >/dev/null || { skip "figures" "gnuplot is not installed"; finish; }

# texts FILE: the words of an SVG or a page. Fails if the file is not well-formed XML.
texts() {
    python3 - "$1" <<'PY'
import re, sys
from xml.dom import minidom
text = open(sys.argv[1], encoding="utf-8").read()
for svg in re.findall(r"<svg.*?</svg>", text, re.S):
    minidom.parseString(svg)
if "<svg" not in text:
    sys.exit("no <svg> in " + sys.argv[1])
print(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", re.sub(r"</?tspan[^>]*>", "", text))))
PY
}
# drawn NAME PATTERN... -- COMMAND...: the command writes $tmp/f.svg, whose words have every pattern
drawn() {
    local name=$1 patterns=() rc=0
    shift
    while [ "$1" != -- ]; do patterns+=("$1"); shift; done
    shift
    rm -f "$tmp/f.svg"
    {
        "$@" -o "$tmp/f.svg" && texts "$tmp/f.svg" >"$tmp/words" || rc=1
        for pattern in "${patterns[@]}"; do
            grep -Eq -- "$pattern" "$tmp/words" || { echo "no '$pattern'"; rc=1; }
        done
        [ $rc -eq 0 ] || head -c 2000 "$tmp/words"
    } >"$tmp/drawn" 2>&1 </dev/null
    report $rc "$name" <"$tmp/drawn"
}

cat >"$tmp/small.json" <<'JSON'
{
  "name": "small",
  "model": "vit-tiny:layers=4,hidden=32,heads=2,mlp=64",
  "data": {"kind": "synthetic", "train_samples": 64, "test_samples": 32},
  "train": {"epochs": 3, "batch": {"per_pipeline": 16}},
  "cluster": "rtx5000-1x8",
  "pipeline": {"num_stages": 4, "num_replicas": 2, "num_microbatches": 4, "schedule": "1f1b"},
  "freeze": {"policy": "closed-form", "alpha": 0.5}
}
JSON
job=$tmp/small.json
"$elapse" plan "$job" -o "$tmp/plan.json" >/dev/null
"$elapse" sim "$job" --record "$tmp/sims.db" >/dev/null

# --- of jobs, plans and simulated runs --------------------------------------------------------------
drawn "a timeline of a job" 'small, simulated' 'K=4 R=2 .*, R drawn once' 'rank 3: [0-9]+ % idle' 'B backward' 'bubble [0-9.]+ %' -- \
    "$elapse" plot timeline "$job"
drawn "of a plan file" 'plan, simulated' 'K=4 R=2 M=4 1f1b' -- "$elapse" plot timeline "$tmp/plan.json"
drawn "with frozen layers that are read from the cache" 'C cache read' -- \
    "$elapse" plot timeline "$job" --frozen 2 --cached --set pipeline.num_stages=2
drawn "with shares of weight gradients left out" 'share left out' -- \
    "$elapse" plot timeline "$job" --set freeze.policy=timed --set freeze.max_share=0.5
drawn "two plans over each other" 'K=4 R=2' 'K=2 R=2' -- "$elapse" plot timeline "$job" "$tmp/plan.json" \
    --set pipeline.num_stages=2
drawn "throughput of a job's simulated run" 'F=2 K=' 'samples per second' -- "$elapse" plot throughput "$job"
drawn "of a recorded simulation" 'F=2 K=' 'simulated' -- "$elapse" plot throughput "$tmp/sims.db"
expect "loss of a simulation" 1 'sims.db: no finished step' "$elapse" plot loss "$tmp/sims.db" -o "$tmp/no.svg"
expect "a timeline in a terminal" 0 '^ *rank 3: [0-9]+ % idle' "$elapse" plot timeline "$job" --term dumb
for suffix in png pdf; do
    check "a figure as .$suffix" "$elapse" plot timeline "$job" -o "$tmp/f.$suffix"
done
drawn "memory of each device" 'rank 3: at most' 'limit 16.0 GiB' 'memory, (K|M|G)iB' -- "$elapse" plot memory "$job"
drawn "traffic between devices" 'from device' 'to device' 'bytes between devices' -- "$elapse" plot traffic "$tmp/plan.json"
drawn "the stages of a cut" '[0-9]+ items' 'mean of the stages' -- "$elapse" plot partition "$job"
drawn "frozen layers" 'frozen prefix F' -- "$elapse" plot freeze "$tmp/sims.db"
drawn "and shares of weight gradients by the ramp" 'share left out' -- "$elapse" plot freeze "$job" --set freeze.policy=timed \
    --set train.epochs=5 --set freeze.max_share=0.5
drawn "the parts of elastic training" 'best static plan' 'freezing' -- "$elapse" plot breakdown "$job"
expect "of a job that freezes nothing" 1 'freezes nothing' "$elapse" plot breakdown "$job" --set freeze.policy=none -o "$tmp/no.svg"
drawn "the bubble" 'K=2 gpipe' 'K=8 1f1b' 'micro-batches of a step, M' -- "$elapse" plot bubble "$job" --set train.batch.per_pipeline=32
drawn "scaling" 'devices' 'ideal' -- "$elapse" plot scaling "$job"
# Many ops, large stages, a scale that does not begin at 0.
cat >"$tmp/large.json" <<'JOB'
{ "name": "large", "model": "gpt2:seq=128", "data": {"kind": "synthetic", "train_samples": 1024},
  "train": {"epochs": 1, "batch": {"global": 1024}}, "cluster": "a100-1x8",
  "pipeline": {"num_stages": 4, "num_replicas": 2, "num_microbatches": 256, "schedule": "1f1b"} }
JOB
drawn "a timeline of many ops shows the beginning of one pipeline" 'R drawn once.*; its first [0-9]+ %' -- "$elapse" plot timeline "$tmp/large.json"
sed 's/gpt2:seq=128/llama2-13b:seq=128/; s/a100-1x8/h100-2x8/; s/"num_stages": 4/"num_stages": 8/; s/"num_replicas": 2/"num_replicas": 1/' "$tmp/large.json" >"$tmp/13b.json"
drawn "parameters of large stages are in billions" '1\.[0-9]+ B' -- "$elapse" plot partition "$tmp/13b.json"
scale() { # 183 to 268 samples/s or so: no tick at 0
    "$elapse" sim --step --model vit-b16 --cluster a100-1x8 --stages 4 --replicas 2 --microbatches 8 --schedule 1f1b \
        --sweep microbatches=8,16 --sweep replicas=1,2 --json >"$tmp/scale.json" &&
        "$elapse" plot sweep "$tmp/scale.json" --heat -o "$tmp/scale.svg" && ! grep -Eq '> ?0</' "$tmp/scale.svg"
}
verify "the colours of a heat map span its values" scale
"$elapse" sim "$job" --step --sweep pipeline.num_microbatches=2,4,8 --sweep cluster.link=1GBps,16GBps,64GBps --json >"$tmp/sweep.json"
drawn "a sweep" 'link=16GBps' 'samples per second by pipeline.num_microbatches' -- "$elapse" plot sweep "$tmp/sweep.json"
drawn "over another key, of another value" 'time of a step, ms by cluster.link' 'num_microbatches=8' -- \
    "$elapse" plot sweep "$tmp/sweep.json" -x cluster.link -y step_ns
drawn "as a heat map" '64GBps' 'peak memory' -- "$elapse" plot sweep "$tmp/sweep.json" --heat -y peak_bytes
"$elapse" sim "$job" --step --sweep pipeline.num_microbatches=8,16 --set cluster.price=3 --json >"$tmp/priced.json" 2>/dev/null
drawn "of the run's cost" 'cost of the whole run by pipeline.num_microbatches' -- "$elapse" plot sweep "$tmp/priced.json" -y cost
priced() { "$elapse" sim "$job" --step --sweep pipeline.num_microbatches=8,16 --set cluster.price=3 --table 2>/dev/null | grep -c ', cost [0-9]' | grep -qx 2; }
verify "a table's lines end with the cost" priced
drawn "scaling by another rate" 'TFLOP/s of a device by devices' -- "$elapse" plot scaling "$job" -y flops_per_s_per_device
expect "scaling by no rate" 2 "no plan has a rate 'speed'" "$elapse" plot scaling "$job" -y speed -o "$tmp/no.svg"
expect "-y of another figure" 2 "only plot sweep and scaling take it" "$elapse" plot bubble "$job" -y mfu -o "$tmp/no.svg"
expect "of a key that was not swept" 2 "no swept key 'link'" "$elapse" plot sweep "$tmp/sweep.json" -x link -o "$tmp/no.svg"
expect "of a value that is not there" 2 "no point has a number 'speed'" "$elapse" plot sweep "$tmp/sweep.json" -y speed -o "$tmp/no.svg"
expect "of a file that is no sweep" 2 'line 1 is not an answer of a sweep|no point has|ends too early' "$elapse" plot sweep "$job" -o "$tmp/no.svg"
cat >"$tmp/lossy.json" <<'JOB'
{"name": "lossy", "model": "uniform:layers=16,fwd=30ms,bwd_input=30ms,bwd_weight=30ms,act=1MiB,params=1000000",
 "data": {"kind": "synthetic", "train_samples": 80000, "test_samples": 10}, "train": {"epochs": 2, "batch": {"global": 512}},
 "cluster": "4x8", "pipeline": {"num_stages": 8, "num_microbatches": 32, "schedule": "1f1b"}}
JOB
"$elapse" sim "$tmp/lossy.json" --seeds 20 --json --timeline "$tmp/line.csv" \
    --faults node_per_hour=2,restart=60s,detect=10s,stall=5s,repair=200s >"$tmp/faults.json"
drawn "goodput by interval" 'useful time, %' 'Young' 'Daly' 'best' -- "$elapse" plot goodput "$tmp/faults.json"
drawn "a run with its losses" 'nodes in use' 'useful' 'lost' 'waiting' 'restart' -- "$elapse" plot losses "$tmp/line.csv"
mkdir "$tmp/lossy"
cat >"$tmp/lossy/metrics.jsonl" <<'LINES'
{"step":1,"loss":1,"step_ns":3000000000,"pipeline_length":2,"replicas":2}
{"step":2,"loss":1,"step_ns":3000000000,"pipeline_length":2,"replicas":2,"stall_ns":1000000000}
{"event":"restart","step":3,"ranks":3,"lost_ns":2000000000,"lost_steps":1,"redo_ns":2500000000,"end_ns":500000000,"why":"lost: a rank was lost"}
{"step":3,"loss":1,"step_ns":4000000000,"pipeline_length":3,"replicas":1,"stall_ns":1000000}
{"torn
LINES
drawn "a real run with its losses" 'ranks in use' 'useful' 'lost' 'detect' 'restart' 'checkpoints' -- "$elapse" plot losses "$tmp/lossy"
expect "losses of a folder that is no run" 3 'cannot open' "$elapse" plot losses "$tmp" -o "$tmp/no.svg"
expect "goodput of an answer without intervals" 2 'no interval between checkpoints was tried' "$elapse" plot goodput <(echo "{}") -o "$tmp/no.svg"
expect "losses of a file that is no timeline" 2 'not a timeline' "$elapse" plot losses "$job" -o "$tmp/no.svg"
check "a figure that failed leaves no file" test ! -e "$tmp/no.svg"
echo '{"configs": [{"pipeline_length": 2, "microbatches": 4, "schedule": "gpipe", "real_step_ns": 2000000, "sim_step_ns": 1900000,
  "noise": 0.1}, {"pipeline_length": 2, "microbatches": 4, "schedule": "1f1b", "real_step_ns": 1000000, "sim_step_ns":
  1020000, "noise": 0.1}], "median_abs_error": 0.035, "worst_abs_error": 0.05}' >"$tmp/matrix.json"
drawn "an error figure tells its points apart" 'K=2 M=4 gpipe' 'K=2 M=4 1f1b' 'within 5 %' '3.5 % \(median\)' -- \
    "$elapse" plot error "$tmp/matrix.json"

# --- traces for Perfetto -----------------------------------------------------------------------------
python=${PYTHON:-python3} # PyPI's perfetto and tensorboard may lie in an environment of their own
reader() { "$python" tests/reference/trace_reader.py "$@"; }
for kind in 1f1b zb-v gpipe; do
    "$elapse" sim "$job" --step --set pipeline.schedule=$kind --set cluster.link=1GBps --set cluster.host_op=20us \
        --trace "$tmp/step.trace" --json >"$tmp/step.json"
    verify "a trace of $kind: arrows, bubble and memory are the answer's" reader "$tmp/step.trace" "$tmp/step.json"
done
"$elapse" sim "$job" --step --set pipeline.num_stages=2 --frozen 2 --frozen-placement cached --cache-write \
    --trace "$tmp/step.trace" --json >"$tmp/step.json"
verify "of a step that reads and writes the cache" reader "$tmp/step.trace" "$tmp/step.json"
expect "a trace into a folder that is not there" 3 "cannot write '.*/none/t.json'" \
    "$elapse" sim "$job" --step --trace "$tmp/none/t.json"
# A viewer of its own: TRACE_PROCESSOR names Perfetto's trace_processor_shell, which PyPI's perfetto talks to.
if [ -n "${TRACE_PROCESSOR:-}" ] && "$python" -c 'import perfetto.trace_processor' 2>/dev/null; then
    verify "trace_processor reads it" reader "$tmp/step.trace"
else
    skip "trace_processor reads it" "TRACE_PROCESSOR (Perfetto's shell) or PyPI's perfetto is missing"
fi

# gnuplot runs what follows a leading '|', and what stands between backquotes in a string: no name and no text of a file gets there.
quoted() { # NAME OF THE FIGURE, then what draws it
    local name=$1
    shift
    mkdir -p "$tmp/quoted" && (cd "$tmp/quoted" && "$@" -o "$name") && [ -s "$tmp/quoted/$name" ] && [ ! -e "$tmp/quoted/pwned" ]
}
verify "a figure whose name is a command for gnuplot" quoted '|touch pwned;.svg' "$elapse" plot bubble "$job"
verify "one that begins with ~" quoted '~none.svg' "$elapse" plot bubble "$job"
for cell in '`touch pwned`' "'.system('touch pwned').'"; do
    sed "s|\"1GBps\"|\"$cell\"|; s|\"cluster.link\":1000000000|\"cluster.link\":\"$cell\"|" "$tmp/sweep.json" >"$tmp/quoted.json"
    verify "a sweep over $cell" quoted sweep.svg "$elapse" plot sweep "$tmp/quoted.json" -x cluster.link
done
printf '{"configs":[{"schedule":"`touch pwned`","real_step_ns":10,"sim_step_ns":11},{"schedule":"b","real_step_ns":20,"sim_step_ns":22}]}' >"$tmp/quoted.json"
verify "a comparison of configurations with such a name" quoted error.svg "$elapse" plot error "$tmp/quoted.json"
# page NAME PATTERN... -- ARGS...: the report of ARGS is one page that has every pattern and asks for nothing outside
page() {
    local name=$1 patterns=() rc=0
    shift
    while [ "$1" != -- ]; do patterns+=("$1"); shift; done
    shift
    {
        "$elapse" report "$@" -o "$tmp/page.html" && texts "$tmp/page.html" >"$tmp/words" || rc=1
        for pattern in "${patterns[@]}"; do
            grep -Eq -- "$pattern" "$tmp/words" || { echo "no '$pattern'"; rc=1; }
        done
        ! grep -Eo "(src|href)=[\"'][^#\"'].{20}|url\(.{20}|<script" "$tmp/page.html" | grep -v 'href="data:,' || rc=1
        [ "$(tail -1 "$tmp/page.html")" = "</html>" ] || rc=1
    } >"$tmp/drawn" 2>&1 </dev/null
    report $rc "$name" <"$tmp/drawn"
}
page "a report of a job" 'small would train vit-tiny' 'nothing was run' 'best static plan' 'K = 4, R = 2' 'bubble' 'frozen prefix F' 'rank 3: at most' 'from device' '[0-9]+ items' -- "$job"
"$elapse" sim examples/paper/vit.json --record "$tmp/paper.db" >/dev/null
page "of a job with a baseline: the factor of \`elapse sim\`" 'Throughput: 860.5 samples' '2.75 times as fast as the job.s baseline' -- examples/paper/vit.json
stays_silent() { "$elapse" report "$job" --set freeze.policy=none -o "$tmp/none.html" && texts "$tmp/none.html" | grep -v '^the fastest plan' >"$tmp/words" && ! grep 'static plan without' "$tmp/words"; }
verify "of a job that freezes nothing: nothing of a best static plan" stays_silent
page "of its record: as many samples" 'Throughput: 860.5 samples' -- "$tmp/paper.db"
page "of a recorded simulation" 'small was simulated: [0-9]+ steps' -- "$tmp/sims.db"
page "of a plan file" 'A plan for vit-tiny' -- "$tmp/plan.json"
expect "a report of nothing" 3 "cannot read '.*/absent'" "$elapse" report "$tmp/absent" -o "$tmp/absent.html"
check "leaves no file" test ! -e "$tmp/absent.html"

# --- of real runs -----------------------------------------------------------------------------------
if [ -x "$(dirname "$elapse")/elapse-exec" ]; then
    # of a model that the shipped profile knows
    "$elapse" train "$job" --set model=vit-tiny:layers=4,hidden=96,heads=3,mlp=384,patch=8 -n 2 --out "$tmp/run" --set pipeline.num_stages=2 --set pipeline.num_replicas=1 \
        --set train.batch.per_pipeline=8 --tensorboard "$tmp/events" >/dev/null 2>&1
    drawn "a timeline of a run" 'run, measured: step' 'pipeline 1 rank 0: [0-9]+ % idle' -- "$elapse" plot timeline "$tmp/run"
    both_traced() {
        "$elapse" compare "$tmp/static" --trace "$tmp/both.trace" && reader "$tmp/both.trace" >"$tmp/groups" &&
            grep -q '^measured: 1 pipelines, 2 ranks' "$tmp/groups" && grep -q '^simulated: 1 pipelines, 2 ranks' "$tmp/groups"
    }
    "$elapse" train "$job" -n 2 --out "$tmp/static" --set pipeline.num_stages=2 --set pipeline.num_replicas=1 --set \
        freeze.policy=none --set train.epochs=1 --set train.batch.per_pipeline=8 --trace "$tmp/run.trace" >/dev/null 2>&1
    verify "a trace of the steps of a run" reader "$tmp/run.trace"
    verify "measured and simulated step in one trace" both_traced
    if "$python" -c 'import tensorboard' 2>/dev/null; then
        verify "TensorBoard reads the run's curves" "$python" tests/reference/events_reader.py "$tmp/events" "$tmp/run"
    else
        skip "TensorBoard reads the run's curves" "$python has no tensorboard (PYTHON names another)"
    fi
    drawn "losses of two runs" 'training loss' 'F=2 K=' -- "$elapse" plot loss "$tmp/run" "$tmp/run"
    drawn "throughput of a run" 'F=2 K=' -- "$elapse" plot throughput "$tmp/run"
    page "a report of a run" 'small trained vit-tiny: 16 steps' 'Accuracy on the test set' 'Prediction: .* a step' -- "$tmp/run"
    page "a report of a run on a machine without a profile predicts nothing" 'There is no prediction, because this machine has no profile' -- "$tmp/static"
    unjudged() { ! grep -Eq '(slower|faster) than the best|Prediction:|% (below|above)' "$tmp/words"; }
    verify "nor has it a verdict by published data" unjudged
    "$elapse" report "$tmp/run" -o "$tmp/page.html" && texts "$tmp/page.html" >"$tmp/words"
    says_doubt() { # the factor beside the best static plan, where the prediction is off by more than 20 %
        local off
        off=$(sed -nE 's/.*Prediction: [^,]*, ([0-9]+)\.[0-9] % (below|above).*/\1/p' "$tmp/words")
        if grep -q 'too noisy to judge' "$tmp/words"; then ! grep -Eq 'says little|(slower|faster) than the best|% (below|above)' "$tmp/words"
        elif [ "$off" -ge 20 ]; then grep -q 'That factor says little' "$tmp/words"; else ! grep -q 'says little' "$tmp/words"; fi
    }
    verify "it says so where a wrong prediction makes a factor doubtful" says_doubt
    shows_accuracy() { "$elapse" runs show --db "$tmp/run/run.db" | awk '$1 == 2 && $NF ~ /^[01]\.[0-9]+$/' | grep -q .; }
    verify "the last epoch of the record has the final accuracy" shows_accuracy
    cp -r "$tmp/run" "$tmp/killed" # as a run that dies leaves its folder
    rm "$tmp/killed/summary.json"
    tail -1 "$tmp/run/metrics.jsonl" | sed 's/"step":16/"step":17/' >>"$tmp/killed/metrics.jsonl"
    printf '{"step":18,"ep' >>"$tmp/killed/metrics.jsonl"
    page "of one that was killed" 'small was killed or is still running: 17 steps' 'train --resume .*killed -n 2' -- "$tmp/killed"
    cp -r "$tmp/killed" "$tmp/early" && rm -r "$tmp/early"/checkpoint-*
    page "of one that was killed before its first checkpoint" 'left no checkpoint' -- "$tmp/early"
    drawn "a timeline of one that was killed" 'killed, measured: step' -- "$elapse" plot timeline "$tmp/killed"
    page "of several" '3 runs' 'All runs' 'small would train' -- "$tmp/run" "$tmp/killed" "$job"
else
    skip "figures of runs" "elapse-exec is not built (no MPI, BLAS or libcrypto)"
fi
# Points whose search was cut short are marked, numbers have no exponent, and a terminal shows whole words.
elapse_lines() { # COMPLETE
    for batch in 256 512; do for uplink in 25Gb/s 100Gb/s; do
        echo "{\"schema\":1,\"train.batch.global\":$batch,\"cluster.uplink\":\"$uplink\",\"step_ns\":9,\"tokens_per_s\":112345.6,\"searched\":{\"complete\":$1}}"
    done; done
}
elapse_lines false >"$tmp/cut.json"
elapse_lines true >"$tmp/whole.json"
marks() { # FILE ARGS...: how many marks a figure has in the terminal
    "$elapse" plot sweep "$tmp/$1" --term dumb "${@:2}" | grep -oE 'search stopped|112346\*' | wc -l
}
verify "lines mark points whose search was stopped" eval '[ "$(marks cut.json)" -eq 1 ] && [ "$(marks whole.json)" -eq 0 ]'
verify "so do cells" eval '[ "$(marks cut.json --heat)" -eq 5 ] && [ "$(marks whole.json --heat)" -eq 0 ]'
plain_numbers() { "$elapse" plot sweep "$tmp/whole.json" --heat -o "$tmp/plain.svg" && grep -q '>112346<' "$tmp/plain.svg" && ! grep -Eq '[0-9]e[+][0-9]' "$tmp/plain.svg"; }
verify "numbers have no exponent" plain_numbers
expect "a timeline's key in a terminal has whole words" 0 '#gradient norm' "$elapse" plot timeline examples/paper/vit.json --term dumb \
    --set pipeline.schedule=1f1b --set pipeline.num_microbatches=8 --set pipeline.num_replicas=1
verify "labels of a throughput in a terminal do not cover each other" eval '[ "$("$elapse" plot throughput examples/paper/vit.json --term dumb |
    grep -oE "F=[0-9]+ K=[0-9]+ R=[0-9]+" | sort -u | wc -l)" -eq "$("$elapse" sim examples/paper/vit.json --json |
    python3 -c "import json, sys
print(len({(e[\"frozen_layers\"], e[\"pipeline_length\"], e[\"replicas\"]) for e in json.load(sys.stdin)[\"epochs\"]}))")" ]'
finish
