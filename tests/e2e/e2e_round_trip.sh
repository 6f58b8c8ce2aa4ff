#!/bin/bash
# group: slow
# What `elapse plan --for X` writes, `--from X` reads back: the same step and the same memory, for random jobs.
# ELAPSE_JOBS=n: the number of jobs (50).
. "$(dirname "$0")/lib.sh"
begin
law() { # FRAMEWORK JOBS
    python3 - "$elapse" "$tmp" "$1" "$2" <<'END'
import json, random, subprocess, sys
elapse, tmp, framework, jobs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
random.seed(60)
def pick(*a): return random.choice(a)
launched = {"megatron": "megatron-te", "torchtitan": "fsdp", "deepspeed": "deepspeed", "automodel": "fsdp"}[framework]
equal = found = tried = 0
worst = 0.0
while found < jobs and tried < 6 * jobs:
    tried += 1
    nodes, layers = pick(1, 1, 2), pick(4, 8, 12, 16)
    devices = 8 * nodes
    tensor, stages = pick(1, 1, 2, 4), pick(1, 1, 2, 4)
    if framework in ("deepspeed",): stages = 1
    width = devices // (tensor * stages)
    model = {"preset": pick("llama3.1-8b", "qwen3-0.6b", "qwen3-1.7b"), "seq": pick(2048, 4096)} if framework == "torchtitan" else {"preset": pick("llama3.2-1b", "qwen3-0.6b"), "seq": 2048} \
        if framework != "megatron" else {"family": "llama", "layers": layers, "hidden": pick(512, 1024), "heads": 16, "kv_heads": pick(16, 8, 4), "mlp": pick(2048, 2816),
        "seq": pick(512, 1024), "vocab": pick(32000, 50304), "tied_head": pick(0, 1), "qkv_bias": pick(0, 1), **pick({}, {}, {"experts": 8, "experts_active": 2, "expert_mlp": 512})}
    if framework == "megatron": model = pick(model, model, {"preset": pick("gpt2", "gpt2-medium")}, {"preset": pick("bert-base", "bert-large") + ":task=mlm", "seq": pick(256, 512)})
    shard = pick("none", "optimizer") if framework == "megatron" else pick("none", "gradients", "weights") if framework in ("torchtitan", "deepspeed") else pick("gradients", "weights")
    job = {"model": model, "cluster": f"h200-{nodes}x8", "data": {"kind": "synthetic"},
           "train": {"batch": {"global": width * pick(4, 8, 16), "micro": pick(1, 2)}, "dtype": "bf16", "framework": launched, "optimizer": {"kind": "adamw"},
                     "attention": "fused", "clip_norm": 1.0},
           "pipeline": {"tensor": tensor, "num_stages": stages, "num_replicas": width, "shard": shard, "recompute": pick("never", "layer"),
                        "schedule": "1f1b" if stages == 1 else pick("1f1b", "interleaved") if framework == "megatron" else
                        pick("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "looped-bfs", "breadth-first", "dualpipe-v", "v-min"),
                        **({"bucket_bytes": pick(0, 160000000)} if framework in ("megatron", "deepspeed") else {}),
                        "sequence_parallel": tensor > 1 and framework != "deepspeed", "expert": 1}}
    json.dump(job, open(tmp + "/law.json", "w"))
    out = subprocess.run([elapse, "plan", tmp + "/law.json", "--for", framework, "-o", tmp + "/law.out", "--budget", "300ms", "--quiet", "--json"], capture_output=True, text=True)
    if out.returncode:
        continue
    a, text = json.loads(out.stdout), open(tmp + "/law.out").read()
    if any("model" in m and "its config" not in m for m in a["not_expressible"]): continue
    more = []
    if "bert" in str(model): text = "pretrain_bert.py " + text
    if framework in ("deepspeed", "automodel"):
        name = tmp + "/law." + ("json" if framework == "deepspeed" else "yaml")
        open(name, "w").write(text)
        text, more = name, ["--model", f"{model['preset']}:seq={model['seq']}"]
        if job["pipeline"]["recompute"] == "layer" and framework == "deepspeed": more += ["--set", "pipeline.recompute=layer"]
    back = subprocess.run([elapse, "plan", "--from", framework, text, "--cluster", job["cluster"], "--budget", "300ms", "--quiet", "--json"] + more, capture_output=True, text=True)
    found += 1
    if back.returncode:
        print(f"# {json.dumps(job)}\n# {back.stderr.strip()}")
        continue
    b = json.loads(back.stdout)["today"]
    need = [sum(x["memory"].values()) for x in (a, b)]
    off = max(abs(a["step_ns"] / b["step_ns"] - 1), abs(need[0] / need[1] - 1))
    worst = max(worst, off)
    equal += off < 0.01
    if off >= 0.01: print(f"# off by {off:.3f}: {json.dumps(job)} {a['step_ns']} {b['step_ns']} {need}")
print(f"# {framework}: {equal} of {found} equal, worst {worst:.4f}")
sys.exit(equal < found or found < jobs // 2)
END
}
export -f law
export elapse tmp
n=${ELAPSE_JOBS:-50}
check "plan: --from megatron equals --for megatron" bash -c "law megatron $((n * 2 / 5))"
for framework in torchtitan automodel deepspeed; do
    check "plan: --from $framework equals --for $framework" bash -c "law $framework $((n / 5))"
done
finish
