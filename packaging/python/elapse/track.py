"""Send the metrics of a run's folder to a tracker, under their names in metrics.jsonl:

    python -m elapse.track RUN --to mlflow|wandb [--project NAME] [--follow]

The tracker's own package must be installed, and its own settings say where to (MLFLOW_TRACKING_URI, WANDB_MODE=offline).
TensorBoard needs none of this: `elapse train --tensorboard DIR`."""
import argparse
import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from typing import Any, Dict, Iterator
from urllib.parse import quote

from ._program import BadInput, ElapseError, Unavailable

_PAUSE_S = 2.0


def _lines(run: str, follow: bool) -> Iterator[Dict[str, Any]]:
    """The lines of metrics.jsonl; with follow those that are still to come, until the run has its summary."""
    path, summary, rest = os.path.join(run, "metrics.jsonl"), os.path.join(run, "summary.json"), ""
    if not os.path.isfile(path):
        raise Unavailable(f"'{run}' has no metrics.jsonl", "the folder of 'elapse train --out'")
    with open(path) as file:
        while True:
            ended = os.path.exists(summary)
            rest += file.read()
            *whole, rest = rest.split("\n")  # the last line may be in the middle of being written
            for line in whole:
                yield json.loads(line)
            if ended or not follow:
                return
            time.sleep(_PAUSE_S)


def _job(run: str) -> Dict[str, Any]:
    """The job of a run; {} where its record does not have it."""
    record = os.path.abspath(os.path.join(run, "run.db"))
    if not os.path.exists(record):
        return {}
    with closing(sqlite3.connect(f"file:{quote(record)}?mode=ro", uri=True)) as db:
        row = db.execute("SELECT job_json FROM run").fetchone()
    return json.loads(row[0]) if row and row[0] else {}


def _settings(value: Any, prefix: str = "") -> Dict[str, Any]:
    """A job as flat keys, which is how `elapse` names them."""
    if not isinstance(value, dict):
        return {prefix: value}
    flat: Dict[str, Any] = {}
    for key, inner in value.items():
        flat.update(_settings(inner, f"{prefix}.{key}" if prefix else key))
    return flat


class _MLflow:
    def __init__(self, project: str, name: str, settings: Dict[str, Any]):
        import mlflow
        self.mlflow = mlflow
        mlflow.set_experiment(project)
        mlflow.start_run(run_name=name)
        mlflow.log_params(settings)

    def add(self, step: int, values: Dict[str, float]) -> None:
        self.mlflow.log_metrics(values, step=step)

    def end(self) -> None:
        self.mlflow.end_run()


class _WandB:
    def __init__(self, project: str, name: str, settings: Dict[str, Any]):
        import wandb
        self.run = wandb.init(project=project, name=name, config=settings)

    def add(self, step: int, values: Dict[str, float]) -> None:
        self.run.log(values, step=step)

    def end(self) -> None:
        self.run.finish()


_TRACKERS = {"mlflow": _MLflow, "wandb": _WandB}


def track(run: str, to: str, project: str = "elapse", follow: bool = False) -> int:
    """Send a run; the number of steps that were sent. Raises BadInput for an unknown tracker, and Unavailable where the
    folder is no run's or the tracker's package is missing."""
    if to not in _TRACKERS:
        raise BadInput(f"unknown tracker '{to}', one of: {' '.join(_TRACKERS)}")
    lines = _lines(run, follow)
    first = next(lines, None)
    try:
        tracker = _TRACKERS[to](project, os.path.basename(os.path.abspath(run)), _settings(_job(run)))
    except ImportError as error:
        raise Unavailable(f"{to} is not installed", f"pip install {to}") from error
    steps = 0
    while first is not None:
        values = {key: value for key, value in first.items() if key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)}
        if "step" in first and "event" not in first:
            tracker.add(first["step"], values)
            steps += 1
        first = next(lines, None)
    tracker.end()
    return steps


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m elapse.track", description="Send a run's metrics to a tracker.")
    parser.add_argument("run", metavar="RUN", help="the folder of 'elapse train --out'")
    parser.add_argument("--to", required=True, metavar="TRACKER", help=" or ".join(_TRACKERS))
    parser.add_argument("--project", default="elapse", help="MLflow's experiment, W&B's project (default: elapse)")
    parser.add_argument("--follow", action="store_true", help="go on until the run has ended")
    asked = parser.parse_args()
    try:
        steps = track(asked.run, asked.to, asked.project, asked.follow)
    except ElapseError as error:
        print(f"elapse.track: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.code
    print(f"{steps} steps sent to {asked.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
