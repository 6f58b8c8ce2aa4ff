"""The calls. Each makes a command line of `elapse`; `settings` are keys of a job file ("pipeline.num_stages")."""
import json
import os
import tempfile
from typing import Any, Dict, Iterable, List, Literal, Optional, Union, overload

from ._answers import Calibration, Device, Epoch, Freezing, Plan, Run, Schedule, Step, pick, read_ops
from ._program import ask, ask_lines, sets, word

Settings = Optional[Dict[str, Any]]


def _job(job: Optional[str], model: Optional[str], cluster: Optional[str], batch: Optional[int], seq: Optional[int],
         dtype: Optional[str], settings: Settings) -> List[str]:
    """A job as words: a file or a model and a cluster, and its keys."""
    keys: Dict[str, Any] = {}
    if job is not None:  # the file's values are replaced
        keys.update({key: value for key, value in (("model", model), ("cluster", cluster)) if value is not None})
    for key, value in (("model.seq", seq), ("train.dtype", dtype), ("train.batch.global", batch)):
        if value is not None:
            keys[key] = value
    keys.update(settings or {})
    words = [job] if job is not None else []
    for name, value in (("--model", model), ("--cluster", cluster)) if job is None else ():
        if value is not None:
            words += [name, value]
    return [*words, *sets(keys)]


def plan(model: Optional[str] = None, cluster: Optional[str] = None, *, job: Optional[str] = None, batch: Optional[int] = None,
         seq: Optional[int] = None, dtype: Optional[str] = None, frozen_layers: int = 0, budget: Optional[str] = None,
         settings: Settings = None) -> Plan:
    """The best plan of a job: a file `job`, or a model and a cluster. batch: samples of a step in all; budget:
    processor time of the search ("10s"). Raises Infeasible where no plan fits."""
    words = ["plan", *_job(job, model, cluster, batch, seq, dtype, settings), "--frozen", frozen_layers]
    data = ask(*words, *(["--budget", budget] if budget else []))
    return pick(Plan, data, data=data)


def sweep(key: str, values: Iterable[Any], model: Optional[str] = None, cluster: Optional[str] = None, *, job: Optional[str] = None,
          batch: Optional[int] = None, seq: Optional[int] = None, dtype: Optional[str] = None,
          settings: Settings = None) -> List[Dict[str, Any]]:
    """A plan for each value of a job key. Rows are flat dicts, which pandas.DataFrame() takes."""
    axis = f"{key}={','.join(map(word, values))}"
    return ask_lines("plan", *_job(job, model, cluster, batch, seq, dtype, settings), "--sweep", axis)


def _step(words: List[Any], folder: str) -> Step:
    ops = os.path.join(folder, "ops.csv")
    data = ask("sim", *words, "--no-wall", "--ops", ops)
    with open(ops) as file:
        return pick(Step, data, data=data, ops=read_ops(file.read()),
                    devices=[pick(Device, device) for device in data["devices"]])


@overload
def simulate(plan: Plan, *, settings: Settings = None, **options: Any) -> Step: ...
@overload
def simulate(plan: Optional[str] = None, *, job: str, step: Literal[True], settings: Settings = None, **options: Any) -> Step: ...
@overload
def simulate(plan: Optional[str] = None, *, job: str, step: Optional[Literal[False]] = None, settings: Settings = None,
             **options: Any) -> Run: ...
@overload
def simulate(plan: Optional[str] = None, *, job: None = None, step: Optional[bool] = None, settings: Settings = None,
             **options: Any) -> Step: ...


def simulate(plan: Union[Plan, str, None] = None, *, job: Optional[str] = None, step: Optional[bool] = None, settings: Settings = None,
             **options: Any) -> Union[Step, Run]:
    """A step of a plan that plan() found; or, with `job`, the whole elastic run of a job file (step=True: one step of it); or
    a step given by options of `elapse sim --step` (model="gpt2", stages=4, microbatches=8, schedule="1f1b")."""
    words: List[Any] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        words += [flag] if value is True else [] if value in (False, None) else [flag, value]
    words += sets(settings or {})
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(plan, Plan):
            for name, value in (("job", plan.data["job"]), ("plan", plan.data)):
                with open(os.path.join(folder, f"{name}.json"), "w") as file:
                    json.dump(value, file)
            return _step([os.path.join(folder, "job.json"), "--step", "--plan", os.path.join(folder, "plan.json"), *words], folder)
        if plan is not None:
            words += ["--plan", plan]
        if job is None or step:
            return _step([*([job] if job else []), "--step", *words], folder)
    data = ask("sim", job, "--no-wall", *words)
    return pick(Run, data, data=data,
                epochs=[pick(Epoch, epoch) for epoch in data["epochs"]])


def schedule(kind: str, stages: int, microbatches: int, chunks: Optional[int] = None) -> Schedule:
    """The op lists of a schedule."""
    data = ask("schedule", "--kind", kind, "--stages", stages, "--microbatches", microbatches,
               *(["--chunks", chunks] if chunks else []))
    return pick(Schedule, data, data=data)


def freeze(layers: int, epochs: int, alpha: Union[float, str] = "1/3", policy: str = "closed-form", **options: Any) -> Freezing:
    """The frozen layers of each epoch; options are those of `elapse freeze` (norms="norms.json")."""
    words = [part for name, value in options.items() for part in ("--" + name.replace("_", "-"), value)]
    data = ask("freeze", "--layers", layers, "--epochs", epochs, "--alpha", alpha, "--policy", policy, *words)
    return pick(Freezing, data, data=data)


def calibrate(name: str, step: str, measured: str, peak: Optional[str] = None) -> Calibration:
    """Fit the costs to a measured step and keep the factors under a name. step: the words of `elapse sim --step` that say it
    ("--model gpt2 --cluster a100-1x8"); measured: its time ("200ms") or a file that calibrate reads."""
    data = ask("calibrate", "--step", step, "--measured", measured, *(["--peak", peak] if peak else []), "-o", name)
    return Calibration(name=name, factors=data.get("factors"), data=data)
