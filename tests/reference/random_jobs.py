#!/usr/bin/env python3
"""Random jobs on clusters of 8 to 64 devices with slow uplinks: the plan of the default budget against textbook
layouts, each fixed by itself. None of them is 0.5 % faster.

    random_jobs.py ELAPSE [FIRST [JOBS [LOW HIGH]]]     (seeds from FIRST, 1; JOBS 200; uplinks of LOW to HIGH GB/s)

The uplinks are 1.25 to 12.5 GB/s unless given. Prints each job that loses, with both commands, and a summary.
Exit 1 if one does.
"""
import json
import random
import subprocess
import sys

MODELS = ["gpt2", "gpt2-large", "gpt2-xl", "bert-base", "bert-large", "vit-b16", "vit-l16", "vit-h14",
          "llama3.2-1b:seq=4096", "llama3-8b:seq=4096", "llama2-7b:seq=2048", "qwen2.5-1.5b:seq=4096",
          "qwen2.5-14b:seq=4096", "mixtral-8x7b:seq=2048,layers=16", "deepseek-moe-16b:seq=4096"]
CLUSTERS = ["a100-2x4", "a100-2x8", "a100-4x8", "a100-pcie-2x8", "a100-pcie-4x8", "h100-2x8", "h100-4x4", "h100-8x8",
            "dgx-h100-4", "v100-4x4", "v100-4x8", "b200-2x8", "mi300x-2x8", "rtx4090-4x4"]
TOLERANCE = 1.005


def ask(elapse, job, fixed=()):
    """The answer, None where there is no plan, and the command."""
    command = [elapse, "plan", *job]
    for key, value in fixed:
        command += ["--set", f"pipeline.{key}={value}"]
    done = subprocess.run(command + ["--json", "--quiet"], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    # A fixed layout may not suit the batch, which is exit 2.
    if done.returncode not in (0, 1, 4) and not (fixed and done.returncode == 2):
        sys.exit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr}")
    return (json.loads(done.stdout) if done.returncode == 0 else None), " ".join(command[1:])


def random_job(seed, low, high):
    rng = random.Random(seed)
    cluster, model = rng.choice(CLUSTERS), rng.choice(MODELS)
    node = int(cluster[-1]) if "x" in cluster[-2:] else 8
    nodes = 4 if cluster == "dgx-h100-4" else int(cluster[-3])
    job = ["--model", model, "--cluster", cluster, "--batch", str(rng.choice([32, 64, 128, 256, 512])),
           "--dtype", rng.choice(["bf16", "bf16", "fp32"]), "--optimizer", rng.choice(["adamw", "adamw", "sgd"]),
           "--set", f"cluster.uplink={rng.uniform(low, high):.2f}GBps"]
    return job, nodes, node, 8 if "mixtral" in model else 64 if "moe" in model else 1


def textbooks(nodes, node, experts):
    """Layouts that people configure by hand, as keys of `pipeline`."""
    alone = {"num_stages": 1, "tensor": 1, "recompute": "auto"}
    for shard in ("none", "gradients", "weights"):
        for replicas in (node, nodes * node):
            yield {**alone, "shard": shard, "num_replicas": replicas}
    yield {**alone, "shard": "weights", "shard_group": node, "num_replicas": nodes * node}
    for schedule in ("1f1b", "interleaved", "zb-v"):
        for stages, tensor in ((2, node), (nodes, node), (nodes, node // 2), (node, 1), (nodes, 1), (2 * nodes, 1)):
            for shard in ("none", "optimizer"):
                yield {"num_stages": stages, "tensor": tensor, "sequence_parallel": str(tensor > 1).lower(),
                       "shard": shard, "schedule": schedule, "recompute": "auto"}
    for tensor in (node, node // 2):
        yield {"num_stages": 1, "tensor": tensor, "sequence_parallel": "true", "shard": "optimizer", "recompute": "auto"}
    if experts > 1:
        for shard in ("optimizer", "weights"):
            yield {**alone, "expert": min(node, experts), "shard": shard}


def main():
    elapse = sys.argv[1]
    first, jobs = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((2, 1), (3, 200)))
    low, high = (float(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((4, 1.25), (5, 12.5)))
    lost, planned, worst = 0, 0, 1.0
    for seed in range(first, first + jobs):
        job, nodes, node, experts = random_job(seed, low, high)
        plan, command = ask(elapse, job)
        rate = plan["samples_per_s"] if plan else 0
        best, by = 0, ""
        for book in textbooks(nodes, node, experts):
            fixed, said = ask(elapse, job + ["--budget", "2s"], book.items())
            # A plan with less room than it should keep may be left for a slower one.
            if fixed and fixed["samples_per_s"] > best and not (fixed["memory_tight"] and not plan["memory_tight"]):
                best, by = fixed["samples_per_s"], said
        planned += rate > 0
        loses = best > rate * TOLERANCE
        lost += loses
        worst = max(worst, best / rate if rate else 1)
        if loses:
            print(f"{seed}: {best / rate - 1 if rate else 1:.2%} slower, complete {plan and plan['searched']['complete']}\n"
                  f"    elapse {command}\n    elapse {by}", flush=True)
    print(f"{jobs} jobs, {planned} with a plan: {lost} lose, the worst by {(worst - 1) * 100:.2f} %")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
