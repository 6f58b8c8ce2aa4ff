#!/usr/bin/env python3
"""Laws over jobs that draw from all keys of plan and sim, by work and not by the clock.

    key_laws.py ELAPSE FOLDER [CASES [SEED [LIBRARY]]]

A job draws a model, a cluster and a handful of keys (formats, tensor, context, experts, shards, offload,
recompute, adapters, packing, pods, timed shares, schedules). Then:

  same       plan, plan --set of its own text, sim --step and the library (LIBRARY: libelapse.so) say one step; the library,
             which does not prefer room in memory, one of those that plan has found
  file       the plan, written and simulated by sim --step --plan, takes the step that it says
  whole run  sim --plan runs its first epoch at that step
  auto       a search over a key is not slower than any value that the key is fixed to, by 0.5 %
  links      links twice as fast are not slower; memory: nor is a device with more of it
  refused    where a job has no plan, no fixed value has one

Searches end by --work, so each answer is that of any machine. Exit 1 and the command lines of what breaks.
"""
import ctypes
import json
import math
import random
import shlex
import subprocess
import sys

WORK = 1500000  # some 2 s of a search that has not ended by itself
MODELS = ["gpt2:seq=512", "bert-base:seq=256", "bert-large", "vit-b16", "llama3-8b:seq=2048,layers=8",
          "llama3-8b:seq=8192,layers=4", "gpt2-xl:seq=1024", "mixtral-8x7b:layers=4,seq=2048",
          "qwen3-30b-a3b:layers=6,seq=2048"]
CLUSTERS = ["h100-1x8", "h100-2x4", "a100-1x8", "rtx5000-2x4", "a100-4x4", "h100-4x8", "mi300x-1x8", "b200-2x8"]
SEARCHED = {  # a key: what it may be fixed to
    "pipeline.tensor": [1, 2, 4, 8], "pipeline.context": [1, 2, 4], "pipeline.expert": [1, 2, 4, 8],
    "pipeline.expert_tensor": [1, 2, 4], "pipeline.num_stages": [1, 2, 4], "pipeline.num_replicas": [1, 2, 4, 8],
    "pipeline.num_microbatches": [1, 2, 4, 8, 16], "pipeline.sequence_parallel": ["true", "false"],
    "pipeline.shard": ["none", "optimizer", "gradients", "weights"], "pipeline.offload": ["none", "optimizer"],
    "pipeline.recompute": ["never", "selective", "stage", "layer"],
    "pipeline.schedule": ["gpipe", "1f1b", "zb-h1", "interleaved"],
    "pipeline.context_comm": ["ring", "all-gather", "ulysses"]}
GIVEN = {  # a key that changes the question: what it may be
    "train.dtype": ["bf16", "bf16", "fp32", "fp16", "fp8"], "train.optimizer.kind": ["adamw", "adamw", "sgd"],
    "train.framework": ["auto", "megatron-te", "fsdp-compiled", "deepspeed", "ours"], "train.clip_norm": [0, 1],
    "train.lora.rank": [0, 0, 0, 16], "train.lora.base": ["same", "nf4"], "train.attention": ["auto", "unfused"],
    "train.overlap": ["auto", "none", "all"], "train.cuda_graphs": ["none", "layers"], "train.dropout": [0, 0.1],
    "pipeline.bucket_bytes": ["25MiB", "0"], "freeze.max_share": [0, 0, 0.5], "data.length": [0, 0, 300],
    "train.post_validation": ["false", "true"], "pipeline.frozen": ["auto", "first"]}


class Tool:
    def __init__(self, elapse, folder, library):
        self.elapse, self.folder, self.runs, self.broken, self.laws = elapse, folder, 0, [], {}
        self.library = library and Library(library)

    def ask(self, *args):
        args = [str(a) for a in args] + ["--json"] + (["--quiet"] if args[0] == "plan" else [])
        done = subprocess.run([self.elapse] + args, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=900)
        self.runs += 1
        if done.returncode not in (0, 1, 2, 4):
            self.broken.append(f"exit {done.returncode}: {shlex.join(args)}: {done.stderr[:200]}")
        return json.loads(done.stdout) if done.returncode == 0 else None, done

    def law(self, name, holds, args, what=""):
        self.laws[name] = self.laws.get(name, 0) + 1
        if not holds:
            self.broken.append(f"{name}: {what}: elapse {shlex.join(str(a) for a in args)}")


class Library:
    """elapse_job_parse() and elapse_plan_find() of libelapse.so."""

    class Options(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("frozen_layers", ctypes.c_int), ("cached", ctypes.c_int),
                    ("simulate", ctypes.c_int), ("current", ctypes.c_void_p), ("turn", ctypes.c_int64)]

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)

    def text(self, job):
        handle, plan, text = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_char_p()
        if self.lib.elapse_job_parse(json.dumps(job).encode(), None, ctypes.byref(handle), None):
            return None
        answer = None
        options = self.Options(size=ctypes.sizeof(self.Options), simulate=1)
        if self.lib.elapse_plan_find(handle, ctypes.byref(options), ctypes.byref(plan), None) == 0:
            if self.lib.elapse_plan_json(plan, ctypes.byref(text), None) == 0:
                answer = json.loads(text.value)
            self.lib.elapse_plan_free(plan)
        self.lib.elapse_job_free(handle)
        return answer


def draw(rng):
    """A question as options of plan: the model, the cluster and --set of keys, and the keys that it leaves open."""
    model, cluster = rng.choice(MODELS), rng.choice(CLUSTERS)
    batch = rng.choice([32, 64, 128])
    # What a first question assumes of a text model a job file does not, so it is given.
    sets = {key: rng.choice(GIVEN[key]) for key in ("train.dtype", "train.optimizer.kind")}
    sets["data.train_samples"] = 4 * batch
    for key in rng.sample(sorted(GIVEN), rng.randint(1, 4)):
        sets[key] = rng.choice(GIVEN[key])
    moe = "mixtral" in model or "a3b" in model
    keys = [k for k in SEARCHED if moe or "expert" not in k]
    open_keys = rng.sample(keys, 3)
    for key in rng.sample(keys, rng.choice([0, 0, 1, 2])):
        if key not in open_keys:
            sets[key] = rng.choice(SEARCHED[key])
    return model, cluster, batch, sets, open_keys


def command(question, more=(), verb="plan"):
    model, cluster, batch, sets, _ = question
    args = [verb, "--model", model, "--cluster", cluster, "--batch", batch]
    for key, value in {**sets, **dict(more)}.items():
        args += ["--set", f"{key}={value}"]
    return args + ["--work", WORK]


def nested(question):
    model, cluster, batch, sets, _ = question
    job = {"model": model, "cluster": cluster, "train": {"batch": {"global": batch}}}
    for key, value in sets.items():
        at = job
        *way, last = key.split(".")
        for name in way:
            at = at.setdefault(name, {})
        at[last] = {"true": True, "false": False}.get(value, value)
    return job


def faster_than(a, b):
    """Whether b and all that it has found were beaten. A plan with room in its memory may be preferred to a faster
    one, a search that ended early may lose half a per cent, and so may the choice among what the event engine saw."""
    found = max([b["samples_per_s"]] + [one["samples_per_s"] for one in b.get("best", [])])
    return a["samples_per_s"] > found * 1.005


def speed(answer):
    return f"{answer['samples_per_s']:.6g}" if answer else "no plan"


def check(tool, rng):
    question = draw(rng)
    base = command(question)
    plan, said = tool.ask(*base)
    open_keys = question[4]
    searched = {"pipeline.tensor": "auto"} if any(k.startswith("pipeline.") for k in question[3]) else {}
    if plan is None:
        if said.returncode == 1:
            for key in open_keys[:1]:
                value = rng.choice(SEARCHED[key])
                one, _ = tool.ask(*command(question, {key: value}))
                tool.law("refused", one is None or key == "pipeline.offload", base, f"{key}={value} has a plan")
        return
    path, file = f"{tool.folder}/job.json", f"{tool.folder}/plan.json"
    with open(path, "w", encoding="utf-8") as out:
        json.dump(nested(question), out)
    again, _ = tool.ask("plan", path, "-o", file, "--work", WORK, "--explain")
    same = ("step_ns", "pipeline_length", "replicas", "tensor", "cut", "schedule", "recompute", "memory_bytes")
    tool.law("same", again and all(again.get(k) == plan.get(k) for k in same), base, "its job as a file is another answer")
    if again:
        step, _ = tool.ask("sim", path, "--step", "--plan", file, "--no-wall")
        tool.law("file", step and step["step_ns"] == again["step_ns"], base,
                 f"sim --step --plan {step and step['step_ns']}, plan {again['step_ns']}")
        run, _ = tool.ask("sim", path, "--plan", file, "--no-wall")
        if not question[3].get("freeze.max_share"):  # the first epoch of a run with shares has none yet
            tool.law("whole run", run and run["epochs"][0]["step_ns"] == again["step_ns"], base,
                     f"sim --plan {run and run['epochs'][0]['step_ns']}, plan {again['step_ns']}")
    if tool.library and again:
        lib = tool.library.text(nested(question))
        found = [again["step_ns"]] + [one["step_ns"] for one in again["best"]]
        tool.law("library", lib and (lib["step_ns"] in found or not again["searched"]["complete"]), base,
                 f"library {lib and lib['step_ns']}, plan {again and again['step_ns']}")
    # What is searched is not worse than a fixed value, if that value is among what is searched.
    wide = {**searched, **{k: "auto" for k in open_keys if k not in question[3]}}
    best, _ = tool.ask(*command(question, wide), "--explain")
    for key in open_keys:
        if key in question[3]:
            continue
        for value in rng.sample(SEARCHED[key], 2):
            one, _ = tool.ask(*command(question, {**wide, key: value}))
            if one:
                tool.law("auto", best and not faster_than(one, best), command(question, wide),
                         f"{key}={value} is faster: {speed(one)}, auto {speed(best)}")
    kind, _ = tool.ask("cluster", question[1])
    if question[3].get("freeze.max_share"):  # the plan is chosen before its shares: with them it may be beaten
        return
    for name, change in (("links", {"cluster.link": 2, "cluster.uplink": 2}), ("memory", {"cluster.mem": 1.5})):
        wider = {}
        for key, times in change.items():
            now = kind and kind.get(key.split(".")[1] + ("_bytes_per_s" if "link" in key else "_bytes"))
            if now:
                wider[key] = f"{int(now * times)}" + ("Bps" if "link" in key else "B")
        if len(wider) == len(change):
            more, _ = tool.ask(*command(question, wider), "--explain")
            tool.law(name, more and not faster_than(plan, more), command(question, wider),
                     f"{speed(more)}, before {speed(plan)}")


def main():
    library = sys.argv[5] if len(sys.argv) > 5 else None
    tool = Tool(sys.argv[1], sys.argv[2], library)
    cases = int(sys.argv[3]) if len(sys.argv) > 3 else 12
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    for case in range(cases):
        check(tool, random.Random(f"{seed} {case}"))
    print("\n".join(tool.broken))
    print("\n".join(f"{tries} tries: {name}" for name, tries in sorted(tool.laws.items())))
    print(f"{cases} jobs, {tool.runs} commands, {len(tool.broken)} laws broken")
    return 1 if tool.broken or not math.prod(tool.laws.get(n, 0) for n in ("same", "file", "auto")) else 0


if __name__ == "__main__":
    sys.exit(main())
