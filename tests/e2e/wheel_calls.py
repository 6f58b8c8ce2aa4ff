"""Calls of the installed package beside the program: python wheel_calls.py ELAPSE. Prints TAP."""
import json
import shutil
import subprocess
import sys
import tempfile
import types

import elapse
from elapse import track

program, failed = sys.argv[1], False


def report(good, name, why=""):
    global failed
    failed = failed or not good
    print(f"{'ok' if good else 'not ok'} - wheel: {name}" + ("" if good else f"\n# {why}"))


def told(*words):
    return [json.loads(line) for line in subprocess.run([program, *words, "--json"], capture_output=True, text=True, check=True).stdout.splitlines()]


def timeless(answer):
    if isinstance(answer, dict):
        return {key: timeless(value) for key, value in answer.items() if key not in ("solve_ns", "processor_ns")}
    return list(map(timeless, answer)) if isinstance(answer, list) else answer


def same(name, ours, words):
    theirs = told(*words)
    theirs = theirs if isinstance(ours, list) else theirs[0]
    report(timeless(ours) == timeless(theirs), name, f"{ours} {theirs}"[:500])


def raises(name, kind, code, call):
    try:
        call()
        report(False, name, "no exception")
    except kind as error:
        report(error.code == code and "\n" not in str(error), name, str(error))


here = elapse.PATH
report(here.startswith(sys.prefix), "the program is the package's own", here)
plan = elapse.plan(model="gpt2", cluster="a100-1x8", batch=64, dtype="bf16", settings={"pipeline.num_stages": 2})
words = ["--model", "gpt2", "--cluster", "a100-1x8", "--set", "train.dtype=bf16", "--set", "train.batch.global=64", "--set", "pipeline.num_stages=2"]
same("plan", plan.data, ["plan", *words])
report(plan.step_ns == plan.data["step_ns"] and plan.pipeline_length == 2, "a plan's members are the answer's", plan)
step = elapse.simulate(plan)
report(step.step_ns == plan.step_ns and max(op.end_ns for op in step.ops) == step.step_ns, "a step of the plan takes the plan's time", step)
report(len(step.devices) == 8 and step._repr_svg_().count("<title>") > 4 and "<table>" in plan._repr_html_(), "notebooks show a timeline and a table")
given = dict(model="gpt2", cluster="a100-1x8", stages=4, microbatches=8, schedule="1f1b")
same("simulate", elapse.simulate(**given).data, ["sim", "--step", "--no-wall", *[x for k, v in given.items() for x in (f"--{k}", str(v))]])
rows = elapse.sweep("train.batch.global", [16, 32], model="gpt2", cluster="a100-1x8", dtype="bf16", settings={"pipeline.num_stages": 1})
same("sweep", rows, ["plan", "--model", "gpt2", "--cluster", "a100-1x8", "--set", "train.dtype=bf16", "--set", "pipeline.num_stages=1", "--sweep", "train.batch.global=16,32"])
same("schedule", elapse.schedule("zb-h1", 4, 8).data, ["schedule", "--kind", "zb-h1", "--stages", "4", "--microbatches", "8"])
same("freeze", elapse.freeze(layers=12, epochs=10).data, ["freeze", "--layers", "12", "--epochs", "10", "--alpha", "1/3", "--policy", "closed-form"])
run = elapse.simulate(job="examples/demo.json")
same("simulate a run", run.data, ["sim", "examples/demo.json", "--no-wall"])
report("<table>" in run._repr_html_() and len(run.epochs) > 0, "a run has epochs and a table")
step_ns = elapse.simulate(model="gpt2", cluster="a100-1x8", stages=2, microbatches=4).step_ns
fitted = elapse.calibrate("ours", "--model gpt2 --cluster a100-1x8 --stages 2 --microbatches 4", f"{step_ns * 11 // 10}ns")
report(fitted.name == "ours" and fitted.data["command"] == "calibrate", "calibrate keeps factors", fitted)
raises("no plan that fits is Infeasible", elapse.Infeasible, 1, lambda: elapse.plan(model="llama3-405b", cluster="a100-1x8", batch=8))
raises("an unknown model is BadInput", elapse.BadInput, 2, lambda: elapse.plan(model="gpt9", cluster="a100-1x8"))
raises("a missing job is Unavailable", elapse.Unavailable, 3, lambda: elapse.plan(job="nowhere.json"))


# A run's metrics to trackers: stand-ins that note their calls take the place of the packages.
folder = tempfile.mkdtemp()
steps = [{"step": n, "epoch": 0, "loss": 2.0 / n, "samples_per_s": 10.5} for n in (1, 2, 3)]
with open(f"{folder}/metrics.jsonl", "w") as file:
    file.writelines(json.dumps(line) + "\n" for line in [*steps, {"event": "restart", "step": 3, "lost_ns": 5}])
    file.write('{"step": 4, "lo')  # a line that is being written
noted = []
wandb = types.SimpleNamespace(init=lambda **given: types.SimpleNamespace(log=lambda values, step: noted.append({"step": step, **values}),
                                                                         finish=lambda: noted.append("end")))
mlflow = types.SimpleNamespace(set_experiment=lambda name: None, start_run=lambda run_name: None, log_params=lambda values: None,
                               log_metrics=lambda values, step: noted.append({"step": step, **values}), end_run=lambda: noted.append("end"))
for name, package in (("wandb", wandb), ("mlflow", mlflow)):
    noted.clear()
    sys.modules[name] = package
    report(track.track(folder, name) == 3 and noted == [*steps, "end"], f"{name} gets each step under its names", noted)
    sys.modules[name] = None
    raises(f"{name} is not installed", elapse.Unavailable, 3, lambda: track.track(folder, name))
raises("an unknown tracker", elapse.BadInput, 2, lambda: track.track(folder, "comet"))
raises("a folder that is no run's", elapse.Unavailable, 3, lambda: track.track("nowhere", "wandb"))
shutil.rmtree(folder)
sys.exit(failed)
