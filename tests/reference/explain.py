"""What `elapse plan --explain` says of layouts and pipeline lengths that it did not choose, checked by plans in which
they are fixed: explain.py ELAPSE FOLDER [LINES]; FOLDER gets the job. Prints a line a job and a last line with the counts; exit 1 where a line
is false."""
import json
import os
import random
import subprocess
import sys

JOBS = [
    ("gpt2-xl:seq=1024", "a100-1x8", 64), ("gpt2-xl:seq=1024", "a100-2x4", 64), ("llama3-8b:seq=2048", "h100-1x8", 32),
    ("llama3-8b:seq=2048", "a100-2x4", 32), ("bert-large:seq=512", "v100-1x4", 64), ("vit-h14:classes=1000", "a100-1x4", 128),
    ("qwen2.5-14b:seq=2048", "h100-2x8", 64), ("llama3.2-1b:seq=4096", "a100-pcie-2x4", 32),
    ("mixtral-8x7b:seq=2048", "h100-2x8", 64), ("gpt2:seq=1024", "t4-2x4", 64), ("llama3-70b:seq=4096", "h100-4x8", 64),
]
# A search of one fixed layout finds what the open one finds to so much.
SAME = 0.005


class Tool:
    def __init__(self, elapse, folder):
        self.elapse, self.folder = elapse, folder

    def plan(self, job, fixed=(), more=()):
        """The answer, or None with why there is none."""
        model, cluster, batch = job
        path = os.path.join(self.folder, "job.json")
        with open(path, "w") as file:
            json.dump({"name": "explained", "model": model, "cluster": {"preset": cluster}, "data": {"train_samples": 100000},
                       "train": {"batch": {"global": batch}, "dtype": "fp16" if cluster[0] in "vt" else "bf16"}}, file)
        words = ["plan", path, "--json", "--budget", "60s"]
        words += [w for key, value in fixed for w in ("--set", f"pipeline.{key}={value}")]
        done = subprocess.run([self.elapse, *words, *more], capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=120)
        if done.returncode not in (0, 1, 2):
            raise SystemExit(f"exit {done.returncode}: {' '.join(words)}: {done.stderr}")
        return (json.loads(done.stdout) if done.returncode == 0 else None), done.stderr.strip()


def layout_keys(line):
    keys = [("tensor", line["tensor"]), ("shard", line["shard"]), ("expert", line["expert"]),
            ("sequence_parallel", str(line["sequence_parallel"]).lower()), ("recompute", "auto"), ("schedule", "auto")]
    return keys + ([("shard_group", line["shard_group"])] if line["shard_group"] else [])


def wrong(line, best, found, why):
    """What is false about a line, beside the plan in which it is fixed; None: nothing."""
    rate = found["samples_per_s"] if found else 0
    verdict, bound = line["verdict"], line["bound_samples_per_s"]
    if rate > best * (1 + SAME):
        return f"it has {rate:.4g} samples/s, the chosen one {best:.4g}"
    if verdict in ("slower", "bound") and rate > bound * (1 + 1e-9):
        return f"it has {rate:.4g} samples/s, above the bound {bound:.4g}"
    # A plan whose memory is too near its limit is timed, but not preferred.
    timed = max([rate] + [x["samples_per_s"] for x in found["best"]]) if found else 0
    if verdict == "slower" and timed < line["samples_per_s"] * (1 - SAME):
        return f"it has {timed:.4g} samples/s, said to be {line['samples_per_s']:.4g}: {why}"
    if verdict in ("memory", "none") and found:
        return f"said to be '{verdict}', but it has {rate:.4g} samples/s"
    return None


def main():
    tool, lines = Tool(sys.argv[1], sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 60
    draw, tried, false, verdicts = random.Random(1), 0, 0, {}
    for n, job in enumerate(JOBS):
        answer, why = tool.plan(job, more=("--explain",))
        if not answer:
            raise SystemExit(f"{job}: {why}")
        chosen = next(x for x in answer["layouts"] if x["verdict"] == "chosen") if answer["layouts"] else None
        claims = [(x, layout_keys(x)) for x in answer["layouts"] if x["verdict"] != "chosen" and x["context"] == 1]
        if chosen and chosen["context"] == 1:
            claims += [(x, layout_keys(chosen) + [("num_stages", x["pipeline_length"])])
                       for x in answer["lengths"] if x["verdict"] != "chosen"]
        # Verdicts that are rare come first; the lines that are left are spread over the jobs.
        draw.shuffle(claims)
        by = {}
        for claim in claims:
            by.setdefault(claim[0]["verdict"], []).append(claim)
        take, share = [], (lines - tried) // (len(JOBS) - n)
        while len(take) < share and any(by.values()):
            take += [group.pop() for group in by.values() if group]
        for line, keys in take[:share]:
            found, why = tool.plan(job, keys, ("--explain",))
            tried += 1
            verdicts[line["verdict"]] = verdicts.get(line["verdict"], 0) + 1
            said = wrong(line, answer["samples_per_s"], found, why)
            if said:
                false += 1
                print(f"# {job[0]} on {job[1]}, " + ", ".join(f"{k}={v}" for k, v in keys) + f": {said}")
        print(f"# {job[0]} on {job[1]}: {answer['samples_per_s']:.4g} samples/s, {min(share, len(take))} lines", flush=True)
    print(f"{tried} lines, {false} false: " + ", ".join(f"{n} {v}" for v, n in sorted(verdicts.items())))
    return tried < lines or false > 0


sys.exit(main())
