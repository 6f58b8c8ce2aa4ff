#!/bin/bash
# tests/e2e/e2e_bridge.sh - the files that bridge/torch writes are files that `elapse` reads. Without PyTorch:
# bridge/torch/tests/small is what `elapse-torch profile` wrote for a model of five items.
. "$(dirname "$0")/lib.sh"
begin
if ! command -v python3 >/dev/null; then
    skip "files of bridge/torch" "no python3 here"
    finish
fi
export ELAPSE_DB=$tmp/store.db PYTHONPATH=$PWD/bridge/torch PYTHONDONTWRITEBYTECODE=1
small=bridge/torch/tests/small
expect "a model of the bridge" 0 '"total_params"' "$elapse" model $small/model.json --json
expect "a job of the bridge is planned" 0 '"cost_source":"constant"' \
    "$elapse" plan $small/job.json -o "$tmp/plan.json" --json
expect "and simulated" 0 '"step_ns"' "$elapse" sim $small/job.json --step --json
expect "a profile of the bridge" 0 'rows into' "$elapse" profiles import $small/profile.json
expect "with its device and libraries" 0 'torch 2' "$elapse" profiles export torch-models
expect "two stages, without PyTorch" 0 '"pipeline_length":2' \
    "$elapse" plan $small/job.json --set pipeline.num_stages=2 --json
cat >"$tmp/again.py" <<'EOF'
import json, sys
from elapse_torch import files
small, tmp = sys.argv[1:]
model, job = (json.load(open(f"{small}/{n}.json")) for n in ("model", "job"))
items = [dict(i, times={row[0]: dict(zip(files.PASSES, row[1:])) for row in i["times"]["cpu"]})
         for i in model["items"]]
files.write_json(f"{tmp}/again.json", files.model_json(model["name"], model["layers"], "cpu", items))
assert json.load(open(f"{tmp}/again.json")) == model
timed = files.model_json(model["name"], model["layers"], "cpu", items, {"op_overhead_ns": 50000, "split_backward": 0.25})
files.write_json(f"{tmp}/timed.json", timed)
again = files.job_json("models", "model.json", "cpu", 2, job["train"]["batch"]["per_pipeline"], "adamw")
assert again == job, again
names = set()
for path in ("a.very.long.path.of.modules.that.ends.in.layer.0", "a,b", "a,b"):
    names.add(files.item_name(path, names))
assert len(names) == 3 and all(len(n) <= 31 and "," not in n for n in names)
assert [r[1] for r in files.times_rows({1: {"fwd": 5, "bwd_input": 1, "bwd_weight": 1},
                                        2: {"fwd": 4, "bwd_input": 1, "bwd_weight": 1}})] == [5, 5]
print("equal")
EOF
expect "the bridge writes these files" 0 'equal' python3 "$tmp/again.py" $small "$tmp"
for key in pipeline.schedule=1f1b pipeline.schedule=zb-h1; do
    for model in $small/model.json "$tmp/timed.json"; do
        "$elapse" sim $small/job.json --step --set model="$(realpath "$model")" --set pipeline.num_stages=2 --set $key --json
    done
done | grep -o '"step_ns":[0-9]*' | cut -d: -f2 >"$tmp/steps"
check "a runtime's own time makes steps longer, above all of two halves" \
    awk '{t[NR] = $1} END {exit !(NR == 4 && t[2] > t[1] && t[4] - t[3] > t[2] - t[1])}' "$tmp/steps"
expect "steps of another's training" 0 '^9000000000ns,2,4' python3 -c "
from elapse_torch.record import write_row
write_row('$tmp/steps.csv', [10**12] * 3 + [9000000000, 9100000000, 8900000000], {'replicas': 2, 'tensor': 4})
print(open('$tmp/steps.csv').read())"
printf 'it 1 took 90 s\nloss 2\nit 2 took 80 s\nit 3 took 70 s\nit 4 took 9.5 s\nit 5 took 9.1 s\nit 6 took 9 s\n' >"$tmp/log"
expect "steps of a log" 0 '^6 steps, median 9100' \
    python3 -m elapse_torch steps "$tmp/log" --pattern 'took ([0-9.]+) s' --set replicas=2 -o "$tmp/log.csv"
expect "as a row for calibrate" 0 '^9100000000ns,2$' tail -1 "$tmp/log.csv"
expect "a log without steps" 2 'no line with a step' python3 -m elapse_torch steps "$tmp/log" --pattern 'x([0-9]+)'
expect "a pattern that is none" 2 "pattern '\('" python3 -m elapse_torch steps "$tmp/log" --pattern '('
expect "a log that is not there" 3 'cannot read log' python3 -m elapse_torch steps "$tmp/none" --pattern '([0-9]+)'
expect "calibrate" 0 '"num_rows":1' "$elapse" calibrate --csv "$tmp/steps.csv" -o mine --json --step \
    "--model llama2-7b --cluster a100-1x8 --batch 8 --microbatches 8"
cat >"$tmp/run.py" <<'EOF'
import json, sys
from elapse_torch import files, record
plan, tmp = json.load(open(sys.argv[1])), sys.argv[2]
about = {"host": "here", "device_kind": "cpu", "device_name": "a processor"}
ops = [("F", 0, 0, 7000, 9000), ("B", 0, 0, 9000, 12000)]
files.write_run(f"{tmp}/run", plan, about, [plan["step_ns"] * 2] * 20, [2.0] * 20, [(0, 0, ops)])
record.write_steps(f"{tmp}/steps.json", [5, 6], {"name": "theirs", "replicas": 2, "tensor": 4})
for name, change in (("none", {"steps": []}), ("key", {"stepz": []}), ("op", {"ops": [{"op": "Q"}]}),
                     ("late", {"ops": [{"op": "F", "start_ns": 2, "end_ns": 1}]}), ("time", {"steps": [{"loss": 1}]})):
    json.dump({"steps": [{"step_ns": 1}], **change}, open(f"{tmp}/wrong-{name}.json", "w"))
EOF
cat >"$tmp/memory.py" <<'EOF'
import os, sys
from elapse_torch import memory
root = sys.argv[1] + "/root"
def put(name, text):
    os.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
    with open(f"{root}/{name}", "w") as f:
        f.write(text)
assert memory.available(root) is None
put("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    3000 kB\n")
assert memory.available(root) == 3000 << 10
put("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/old/mine\n0::/jobs/mine\n")
put("sys/fs/cgroup/jobs/mine/memory.max", "max\n")
put("sys/fs/cgroup/jobs/memory.max", "2000000\n")
put("sys/fs/cgroup/jobs/memory.current", "1500000\n")
put("sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 300000\n")
assert memory.available(root) == 800000
put("sys/fs/cgroup/memory/old/memory.limit_in_bytes", "900000\n")
put("sys/fs/cgroup/memory/old/memory.usage_in_bytes", "200000\n")
assert memory.available(root) == 700000
assert 0 < memory.room_in("/dev/shm") <= os.statvfs("/dev/shm").f_bavail * os.statvfs("/dev/shm").f_frsize
EOF
check "memory of a control group" python3 "$tmp/memory.py" "$tmp"
check "a folder without a run" python3 -c "from elapse_torch.files import check_run_folder; check_run_folder('$tmp')"
check "a run folder of the bridge" python3 "$tmp/run.py" "$tmp/plan.json" "$tmp"
expect "which no other run may have" 1 "BridgeError: folder '.*' already holds a run" \
    python3 -c "from elapse_torch.files import check_run_folder; check_run_folder('$tmp/run')"
expect "its run" 0 'run 1: 20 steps into' "$elapse" runs import "$tmp/run/run.json" --db "$tmp/run/run.db"
"$elapse" compare "$tmp/run" --json >"$tmp/compare.json" 2>/dev/null
expect "compared with its plan, on the job's cluster" 0 '"error":-0\.5,' cat "$tmp/compare.json"
expect "and its ops" 0 '"op":"B","count":1,"real_ns":3000' cat "$tmp/compare.json"
expect "steps of a loop become a run" 0 'run 1: 2 steps into' "$elapse" runs import "$tmp/steps.json" --db "$tmp/theirs.db"
expect "which is listed" 0 'real +theirs' "$elapse" runs list --db "$tmp/theirs.db"
while read -r name message; do
    expect "a run file: $message" 2 "$message" "$elapse" runs import "$tmp/wrong-$name.json" --db "$tmp/wrong.db"
done <<'EOF'
none steps must have one at least
key unknown key 'stepz'
op ops\[0\].op must be
late ops\[0\] ends before it starts
time steps\[0\].step_ns is missing
EOF
verify "wrong files leave no store" test ! -e "$tmp/wrong.db"
cat >"$tmp/links.py" <<'EOF'
import sys
from elapse_torch import files
def row(size, ns):
    return {"backend": "gloo", "place": "node", "ranks": 1, "bytes": size, **files.spread([ns])}
# The smallest message is not the fastest, and the largest is slower than the one before.
rows = [row(1024, 250e3), row(4096, 100e3), row(1 << 20, 400e3), row(1 << 24, 6e6)]
cluster = files.cluster_json("cpu", 2, rows)
assert cluster["latency"] == "100.000us" and [p[0] for p in cluster["link"]] == [1 << 20, 1 << 24], cluster
files.write_json(sys.argv[1] + "/cluster.json", cluster)
# 1 MiB was held up and took longer than 4 MiB.
held = files.cluster_json("cpu", 2, [row(1024, 81e3), row(1 << 20, 9e6), row(1 << 22, 2.5e6)])
files.write_json(sys.argv[1] + "/held.json", held)
# A message takes 40 us of the processor at least, and 1 ms more for 4 MB: 4 GB/s.
busy = files.cluster_json("cpu", 2, rows, [(1024, 50000), (4096, 40000), (4 * 10 ** 6, 1040000)])
assert busy == {**cluster, "message_host": "40.000us", "message_host_rate": "4.000000GBps"}, busy
files.write_json(sys.argv[1] + "/links.json", files.profile_json("links", {}, links=rows))
EOF
check "links of the bridge" python3 "$tmp/links.py" "$tmp"
expect "a cluster" 0 '"step_ns"' "$elapse" sim $small/job.json --step --set "cluster=$tmp/cluster.json" --json
expect "a cluster with a message that was held up" 0 '"step_ns"' \
    "$elapse" sim $small/job.json --step --set "cluster=$tmp/held.json" --json
step_ns() { # KEY=VALUE...
    local sets=()
    for s; do sets+=(--set "$s"); done
    "$elapse" sim $small/job.json --step --json --set "cluster=$tmp/cluster.json" --set pipeline.num_stages=2 \
        --set pipeline.schedule=gpipe --set pipeline.num_microbatches=1 "${sets[@]}" | grep -o '"step_ns":[0-9]*' | head -1 | cut -d: -f2
}
# One micro-batch goes through both stages and back: each of four ops has one message.
verify "the processor time of messages is in a step" \
    test $(($(step_ns cluster.message_host=40us) - $(step_ns))) = 160000
expect "and a profile" 0 '4 rows into' "$elapse" profiles import "$tmp/links.json"
cat >"$tmp/freeze.py" <<'EOF'
import sys
from elapse_torch.errors import BridgeError
from elapse_torch.library import Job
job = Job(sys.argv[1], ["freeze.policy=table", "freeze.table=[0,1,3,1]", "pipeline.frozen=first",
                        "train.epochs=5", "pipeline.num_stages=2"])
assert (job.info.num_layers, job.info.num_items, job.info.num_devices) == (6, 6, 2)
info = job.open_freezer(800, 0)
assert (info.policy, info.num_layers, info.uses_evidence) == (b"table", 6, 0), info.policy
cuts = []
for turn, frozen in enumerate((0, 1, 3, 1)):
    decision = job.decide(turn, None)
    assert decision.num_frozen == frozen and decision.change, (turn, decision.num_frozen)
    cuts.append(sum(job.find_plan(frozen, False, turn)["cut"]))
assert cuts == [6, 5, 3, 5], cuts
for wrong in (lambda: job.decide(9, None), lambda: job.find_plan(7, False, 0),
              lambda: job.share(1, 0.0, 0.0), lambda: Job(sys.argv[1] + ".none")):
    try:
        wrong()
    except BridgeError as error:
        assert str(error), error
    else:
        raise SystemExit("no error")
job.close()
EOF
check "libelapse by ctypes" env ELAPSE_BIN="$(dirname "$elapse")" python3 "$tmp/freeze.py" $small/job.json
for file in bridge/torch/elapse_torch/*.py bridge/torch/tests/*.py; do
    check "$file is Python" python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), feature_version=(3, 9))' "$file"
done
finish
