#!/bin/bash
# bridge/torch/tests/check.sh - the package with PyTorch: profile, plan, and runs on two ranks of one core over
# gloo, whose losses and gradients are those of the whole model. Prints a TAP line a check. Exit 77: there is
# no PyTorch and none can be installed.
#
#   ELAPSE_TORCH_VENV   a virtual environment with torch, kept (default: ~/.cache/elapse-torch-venv)
set -u
cd "$(dirname "$0")/../../.." || exit 3
venv=${ELAPSE_TORCH_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/elapse-torch-venv}
python=$venv/bin/python
if ! "$python" -c 'import torch' 2>/dev/null; then
    # The CPU wheel has an index of its own; PyPI's wheel brings CUDA's libraries.
    index=https://download.pytorch.org/whl/cpu
    python3 -m venv "$venv" || exit 77
    if timeout 10 "$python" -c "import urllib.request as r; r.urlopen('$index/', timeout=5)" 2>/dev/null; then
        timeout 180 "$python" -m pip install -q --retries 0 --index-url $index torch numpy
    else
        timeout 180 "$python" -m pip install -q --retries 0 torch numpy
    fi || exit 77
fi
tmp=$(mktemp -d "${TMPDIR:-/tmp}/elapse-bridge.XXXXXX") || exit 3
trap 'rm -rf "$tmp"' EXIT
failed=0
export PYTHONPATH=$PWD/bridge/torch:$PWD/bridge/torch/tests:$tmp ELAPSE_BIN=${ELAPSE_BIN:-$PWD/build/bin} ELAPSE_DB=$tmp/store.db
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo PYTHONDONTWRITEBYTECODE=1 ELAPSE_MODEL=mlp
models=bridge/torch/tests/models.py

expect() { # NAME STATUS PATTERN COMMAND...
    local name=$1 want=$2 pattern=$3 rc
    shift 3
    "$@" </dev/null >"$tmp/out" 2>&1
    rc=$?
    if [ $rc -eq "$want" ] && grep -Eq -- "$pattern" "$tmp/out"; then
        echo "ok - $name"
    else
        echo "not ok - $name (exit $rc, wanted $want and '$pattern')"
        tail -20 "$tmp/out" | sed 's/^/# /'
        failed=1
    fi
}
started() { # N SCRIPT ARGUMENTS...
    local n=$1
    shift
    timeout -k 5 120 "$python" -m torch.distributed.run --standalone --nproc-per-node "$n" "$@"
}
ranks() { # N ARGUMENTS...
    local n=$1
    shift
    started "$n" -m elapse_torch "$@"
}
alone() { # ARGUMENTS...: as torchrun starts a single rank, without its imports
    RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29531 timeout -k 5 120 "$python" "$@"
}
pair() { # ARGUMENTS...: two ranks without torchrun, which would end one as soon as the other ends; rank 0's status
    local port
    port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -k 5 60 "$python" "$@" >/dev/null 2>&1 &
    RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -k 5 60 "$python" "$@"
}
plan() { # FILE key=value...
    local file=$1 sets=()
    shift
    for s in "$@"; do sets+=(--set "$s"); done
    "$ELAPSE_BIN/elapse" plan "$tmp/mlp/job.json" "${sets[@]}" -o "$file" >/dev/null
}
equal() { # FILE: gradients are those of the whole model
    "$python" -c 'import json, sys; r = json.load(open(sys.argv[1]))
sys.exit(not (abs(r["loss_difference"]) < 1e-5 and r["gradient_difference"] < 1e-4))' "$1" && echo equal
}

expect "profile" 0 'items, .* distinct' "$python" -m elapse_torch profile $models --microbatches 2,4 --budget 0.01 -o "$tmp/mlp"
kinds=("1f1b 1 2 1" "zb-v 2 2 1 pipeline.recompute=stage" "gpipe 1 1 2" "gpipe 1 1 2 pipeline.shard=weights") runs=()
for i in 0 1 2 3; do
    set -- ${kinds[i]}
    plan "$tmp/plan-$i.json" pipeline.schedule=$1 pipeline.chunks=$2 pipeline.num_stages=$3 pipeline.num_replicas=$4 \
        pipeline.num_microbatches=4 ${5:-}
    runs+=(${runs:+--next} run $models "$tmp/plan-$i.json" --check --steps 3 --out "$tmp/out-$i.json" --run-dir "$tmp/run-$i")
done
cat >"$tmp/tied.py" <<'EOT'
import torch
from torch import nn
from models import loss
class Tied(nn.Module):
    """As many items as the mlp has: the table is read by the first and the last one."""
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.table.weight
    def forward(self, x):
        x = self.table(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)
def make_model():
    return Tied()
def make_batch(samples):
    return torch.randint(50, (samples, 3)), torch.randint(50, (samples, 3))
EOT
runs+=(--next run "$tmp/tied.py" "$tmp/plan-0.json" --check --steps 3 --out "$tmp/out-4.json")
kinds+=("tied weights, 1f1b")
# A table whose transposed rows each layer adds, and a weight that each layer applies once more, beside weights of its own.
cat >"$tmp/reused.py" <<'EOT'
import torch
from torch import nn
from models import loss
from tied import make_batch
class Reused(nn.Module):
    """As many items as the mlp has."""
    def __init__(self):
        super().__init__()
        self.table, self.rows = nn.Embedding(50, 16), nn.Embedding(16, 3)
        self.again, self.more = nn.Parameter(torch.randn(16, 16) / 8), nn.Parameter(torch.randn(16) / 8)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, 50)
    def forward(self, x):
        x, rows = self.table(x), self.rows(torch.arange(16)).t()
        for layer in self.layers:
            x = torch.tanh(layer(x) + nn.functional.linear(x, self.again, self.more) + rows)
        return self.head(x)
def make_model():
    return Reused()
EOT
runs+=(--next run "$tmp/reused.py" "$tmp/plan-0.json" --check --steps 3 --out "$tmp/out-5.json")
kinds+=("reused weights, 1f1b")
runs+=(--next run "$tmp/reused.py" "$tmp/plan-1.json" --check --steps 3 --out "$tmp/out-6.json")
kinds+=("reused weights, zb-v")
# A bias of keys, of which softmax takes away what it adds: its gradient is rounding.
cat >"$tmp/keys.py" <<'EOT'
import torch
from torch import nn
from models import loss
from tied import make_batch
class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
    def forward(self, x):
        return x + torch.softmax(self.q(x) @ self.k(x).transpose(1, 2), -1) @ self.v(x)
class Keys(nn.Module):
    """As many items as the mlp has."""
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(Attend() for _ in range(4))
        self.head = nn.Linear(16, 50)
    def forward(self, x):
        x = self.table(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
def make_model():
    return Keys()
EOT
# Shares of weight gradients that each stage leaves out.
shares() { # FILE SHARE...
    "$python" -c 'import json, sys; p = json.load(open(sys.argv[1])); p["shares"] = [[float(s)] * p["microbatches"] for s in sys.argv[2:]]
json.dump(p, open(sys.argv[1], "w"))' "$@"
}
timed=("1f1b 1 2 1 0.5 0.5" "zb-h1 1 2 1 0.5 0.75" "1f1b 1 2 1 1 0.5" "zb-v 2 2 1 0.25 0.5 0.9 0.5" "gpipe 1 1 2 0.5" "zb-h1 1 2 1 1 0.5" "zb-v 2 2 1 1 1 0.5 0.5")
for i in 7 8 9 10 11 12 13; do
    set -- ${timed[i - 7]}
    plan "$tmp/plan-$i.json" pipeline.schedule=$1 pipeline.chunks=$2 pipeline.num_stages=$3 pipeline.num_replicas=$4 pipeline.num_microbatches=4
    shares "$tmp/plan-$i.json" "${@:5}"
    runs+=(--next run $models "$tmp/plan-$i.json" --check --steps 3 --out "$tmp/out-$i.json")
    kinds+=("$1, $3 stages, $4 replicas, shares ${*:5}")
done
runs+=(--next run "$tmp/keys.py" "$tmp/plan-0.json" --check --steps 3 --out "$tmp/out-14.json")
kinds+=("biases of keys, 1f1b")
expect "plans run, one after the other" 0 'error' started 2 bridge/torch/tests/several.py "${runs[@]}"
for i in ${!kinds[@]}; do
    expect "${kinds[i]}: the whole model's gradients" 0 'equal' equal "$tmp/out-$i.json"
done
expect "zb-v's ops beside the simulation" 0 '"op":"W","count":16' "$ELAPSE_BIN/elapse" compare "$tmp/run-1" --json
expect "one stage's ops" 0 '"op":"F","count":8' "$ELAPSE_BIN/elapse" compare "$tmp/run-2" --json
cat >"$tmp/again.py" <<'EOT'
import torch
import models
from elapse_torch import runtime
from elapse_torch.chain import chain_of
x, target = models.make_batch(4 * runtime.MICROBATCHES)
chain, calls = chain_of(models.make_model(), (x[:4],)), []
stages = [chain.stage(0, 2, True), chain.stage(2, len(chain.items), True)]
for i, stage in enumerate(stages):
    stage.graph.register_forward_pre_hook(lambda *_, i=i: calls.append(i))
with runtime.one_rank():
    bench = runtime.Bench(stages, lambda out, y: models.loss(chain.output((out,)), y), torch.device("cpu"))
    for ops in runtime.WHOLE, runtime.HALVES:
        bench.load(ops)
        bench.step_ns((), target, chain.keywords((x,), {}))
        calls.clear()
        bench.step_ns((), target, chain.keywords((x,), {}))
        print("forwards", *(calls.count(i) / runtime.MICROBATCHES for i in range(2)))
EOT
expect "recompute repeats a stage's forward once, whether its backward is split or not" 0 '^2$' \
    sh -c '"$1" "$2" | grep -c "^forwards 2.0 2.0"' sh "$python" "$tmp/again.py"
cat >"$tmp/means.py" <<'EOT'
from elapse_torch import losses
import models
make_model = models.make_model
def make_batch(samples):
    inputs, target = models.make_batch(samples)
    target[1:7] = -100
    return inputs, target
def mean_of_means(found, samples):
    return found[0] / found[1] * samples, samples, False
losses.as_sum = mean_of_means
losses.StepLoss._check_sum = lambda *_: None  # the step would refuse it before
EOT
plan "$tmp/plan-one.json" pipeline.num_stages=1 pipeline.num_replicas=1 pipeline.num_microbatches=4
alone -m elapse_torch run "$tmp/means.py" "$tmp/plan-one.json" --check --steps 1 --out "$tmp/out-means.json" >/dev/null 2>&1
expect "--check sees a mean of means" 0 'seen' "$python" -c 'import json, sys; r = json.load(open(sys.argv[1]))
print("seen" if abs(r["loss_difference"]) > 5e-5 and r["gradient_difference"] > 1e-2 else r)' "$tmp/out-means.json"
cat >"$tmp/casts.py" <<'EOT'
import contextlib, torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from elapse_torch import measure
class Casts(TorchDispatchMode):
    """Conversions of the weight, not of its gradient."""
    count = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += "_to_copy" in str(func) and args[0].shape == (64, 48) and args[0].dtype == torch.float32
        return func(*args, **(kwargs or {}))
def region():
    return torch.autocast("cpu", dtype=torch.bfloat16)
x, timer = torch.randn(2, 48), measure.Timer(torch.device("cpu"), 0)
for context in region, contextlib.nullcontext:
    stage = nn.Linear(48, 64, bias=False)
    with Casts() as casts:
        _, stash, _ = measure.measure_item(stage, (x,), {}, lambda outs: outs, timer, context)
    print("conversions", casts.count, "stash", stash)
with Casts() as casts:
    measure.conversions(stage, (x,), {}, region, timer)
print("for an update", casts.count)
EOT
expect "autocast: weights are converted once for all passes, and are no stash" 0 '^conversions 1 stash 192 conversions 0 stash 384 for an update 7$' \
    sh -c '"$1" "$2" 2>/dev/null | tr "\n" " " | sed "s/ *$//"' sh "$python" "$tmp/casts.py"
cat >"$tmp/halves.py" <<'EOT'
from types import SimpleNamespace
import torch
from torch import nn
from elapse_torch.chain import chain_of
class Half(nn.Module):
    """As transformers' encoder-decoders: each half has a configuration of its own, and gives back a cache that is no tensor."""
    def __init__(self):
        super().__init__()
        self.config, self.layers = SimpleNamespace(use_cache=True), nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return (x, SimpleNamespace()) if self.config.use_cache else (x,)
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.config, self.encoder, self.decoder = SimpleNamespace(use_cache=True), Half(), Half()
    def forward(self, x):
        made = self.decoder(self.encoder(x)[0])
        return dict(zip(("logits", "cache"), made))
print(len(chain_of(Both(), (torch.randn(2, 4),)).items), "items")
EOT
expect "the halves of an encoder-decoder keep no cache" 0 '^4 items' "$python" "$tmp/halves.py"
started 2 bridge/torch/tests/losses.py "$tmp" >"$tmp/losses" 2>"$tmp/losses.err" || sed 's/^/# /' "$tmp/losses.err"
expect "losses and loaders" 0 '^ok loader: batches of several shapes' cat "$tmp/losses"
sed -n 's/^not ok /not ok - /p' "$tmp/losses"
! grep -q '^not ok' "$tmp/losses" || failed=1
started 2 bridge/torch/tests/loops.py "$tmp" >"$tmp/loops" 2>"$tmp/loops.err" || sed 's/^/# /' "$tmp/loops.err"
expect "users' loops beside plain PyTorch" 0 "^ok a checkpoint's learning rate" cat "$tmp/loops"
sed -n 's/^not ok /not ok - /p' "$tmp/loops"
! grep -q '^not ok' "$tmp/loops" || failed=1
elastic=(bridge/torch/tests/elastic.py "$tmp/mlp/job.json" --set train.epochs=5 --set pipeline.num_microbatches=2)
table="--set freeze.policy=table --set freeze.table=[0,1,3,1]"
expect "the plan changes" 0 '^equal' started 2 "${elastic[@]}" \
    --case $table --set elastic.stages=[2,2,1,2] \
    --case $table --set elastic.stages=[2,1,2] --check resume --set cache.policy=off \
    --case --set freeze.policy=safe --check safe --set elastic.stages=[2] \
    --case $table --set elastic.stages=[2,1,2] --share 0.6 --check shares --set elastic.auto_dp=false \
    --case $table --set elastic.stages=[2,2,1] --share 0.6 --check resume --set freeze.warmup=1 --set elastic.auto_dp=false
cp "$tmp/out" "$tmp/elastic"
expect "between K = 1 and 2" 0 . grep '^equal: equal' "$tmp/elastic"
expect "from a checkpoint on, without a cache" 0 . grep '^equal: resume' "$tmp/elastic"
expect "shares, while layers freeze and thaw" 0 . grep '^equal: shares' "$tmp/elastic"
expect "shares from a checkpoint on" 0 '^2$' grep -c '^equal: resume' "$tmp/elastic"
expect "safe measures the probe" 0 . grep '^equal: safe' "$tmp/elastic"
expect "safe without a probe" 1 "hint|policy 'safe' measures on samples" started 2 "${elastic[@]}" --set freeze.policy=safe
expect "a rank that dies before the first plan" 1 'BridgeError: the change to F = 0 failed: .*[Cc]onnection' \
    pair "${elastic[@]}" $table --die _change:1
expect "a rank that dies in a change of plan" 1 'BridgeError: the change to F = 1 failed: .*[Cc]onnection' \
    pair "${elastic[@]}" $table --set elastic.stages=[2,1,2] --die _move:2
expect "a job of more devices than ranks" 1 'the job has 2 devices, torchrun started 1' alone "${elastic[@]}" $table
expect "links" 0 'gloo, 2 ranks: latency' ranks 2 links --largest 65536 --rounds 5 -o "$tmp/l.json" --cluster "$tmp/c.json"
cat >"$tmp/said.py" <<'EOT'
import sys, torch, elapse_torch, tied
torch.manual_seed(1)
x, y = tied.make_batch(64)
for model in tied.make_model(), torch.compile(tied.make_model(), backend="eager"):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with elapse_torch.Elastic(model, optimizer, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y)), sys.argv[1], loss=tied.loss,
                              overrides=["freeze.policy=table", "freeze.table=[0,1]", "train.epochs=2", "pipeline.num_microbatches=2"]) as run:
        for epoch in range(run.epochs):
            for batch in run:
                run.step(batch)
EOT
alone -m elapse_torch profile "$tmp/tied.py" --ranks 1 --microbatches 2,4 --budget 0.01 -o "$tmp/tied" >"$tmp/said" 2>&1 &&
    alone "$tmp/said.py" "$tmp/tied/job.json" >"$tmp/said" 2>&1
expect "a table that goes on training behind a frozen prefix is told" 0 "^elapse-torch: 'table.weight' of the frozen layers goes on training, in head, so their output is not cached" cat "$tmp/said"
expect "and that a compiled model runs as exported, once" 0 '^1$' grep -c '^elapse-torch: the model is compiled: stages run its exported operators' "$tmp/said"
expect "no torchrun" 2 'start with torchrun' "$python" -m elapse_torch run $models "$tmp/plan-0.json"
cat >"$tmp/flow.py" <<'EOF'
import torch
class Flow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
    def forward(self, x):
        x = self.a(x)
        return x if x.sum() > 0 else -x
def make_model():
    return Flow()
EOF
cat >"$tmp/whole.py" <<'EOF'
import torch
class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.a(x), x.sum()
def make_model():
    return Two()
EOF
cat >"$tmp/full.py" <<'EOF'
import torch
from elapse_torch import cmd_profile, runtime
from models import make_model, make_batch, loss
measure = cmd_profile.measure_item
def full(stage, values, *more):
    if values and values[0].shape[0] == 4:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")
    return measure(stage, values, *more)
cmd_profile.measure_item = full
step_ns = runtime.Bench.step_ns
def held_up(self, *args):
    """As if another program took the processor in each half of a backward."""
    ns, parts = step_ns(self, *args)
    return ns, {name: 100 * t if "weight" in name else t for name, t in parts.items()}
runtime.Bench.step_ns = held_up
EOF
cat >"$tmp/norm.py" <<'EOF'
import torch
def make_model():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 8), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4, 2))
EOF
# One process for all commands that are refused. The last one changes the package.
alone bridge/torch/tests/several.py --go-on run $models "$tmp/plan-0.json" --steps 1 --next run $models "$tmp/none.json" --steps 1 \
    --next profile "$tmp/flow.py" --inputs 4 -o "$tmp/flow" --next profile "$tmp/whole.py" --inputs 4 -o "$tmp/flow" \
    --next profile "$tmp/norm.py" --inputs 3x8x8 --microbatches 1 -o "$tmp/norm" \
    --next profile "$tmp/norm.py" --inputs 3x8x8 --microbatches 1,2 --budget 0.01 -o "$tmp/norm" \
    --next profile "$tmp/flow.py" --inputs ax4 -o "$tmp/flow" --next profile "$tmp/none.py" --inputs 4 \
    --next profile "$tmp/full.py" --microbatches 2,4 --budget 0.01 -o "$tmp/full" </dev/null >"$tmp/refused" 2>&1
refused() { # NAME STATUS PATTERN
    expect "$1" 0 "^$2: elapse-torch: .*$3" cat "$tmp/refused"
}
refused "ranks that do not match the plan" 3 'the plan uses 2 ranks .*, torchrun started 1'
refused "a plan that is not there" 3 "cannot read plan"
refused "control flow on data" 2 "flow.py:8 \\('return x if x.sum"
refused "an output without weights" 2 "cannot cut the model: its output holds 'aten.sum.* at .*whole.py:7"
refused "batch norm of one sample" 2 "the model has batch norm, which needs two samples"
refused "batch norm's profile leaves out one sample" 0 "micro-batches of 1 sample are left out"
refused "inputs that are no shape" 2 'is not \[NAME=\]SHAPE'
refused "a model file that is not there" 3 'cannot open model file'
refused "out of memory with one size" 1 "memory in item '.*' with micro-batch 4; what was measured is written"
expect "the other size is kept, and a split backward that was held up is bounded" 0 'step_ns' "$ELAPSE_BIN/elapse" sim "$tmp/full/job.json" --step --json
exit $failed
