"""Measured steps of a training that nobody here started: a row for `elapse calibrate --csv`.

    with elapse_torch.record("steps.csv") as step:
        for batch in loader:
            with step():
                ...                     # forward, backward, update

Each step's end waits for the device. The file has one row when the block ends: the median of the
steps after the first three. A path that ends in .json gets all steps, for `elapse runs import`."""
import contextlib
import time

from . import files

WARM_UP = 3


def write_row(path, times_ns, settings):
    """times_ns: of the steps, the first ones too. settings: more columns, as {"batch": 8}."""
    kept = times_ns[WARM_UP:] or times_ns
    columns = {"measured": f"{files.percentile(kept, .5)}ns", **settings}
    with open(path, "w", encoding="utf-8") as f:
        f.write(",".join(columns) + "\n" + ",".join(map(str, columns.values())) + "\n")


def write_steps(path, times_ns, settings):
    """settings: name, and pipeline_length and replicas of all steps; others have no place in a run."""
    shape = {k: int(settings[k]) for k in ("pipeline_length", "replicas") if k in settings}
    files.write_json(path, {
        "name": settings.get("name", "torch"), "devices": shape.get("pipeline_length", 1) * shape.get("replicas", 1),
        "steps": [{"step": i, "step_ns": ns, **shape} for i, ns in enumerate(times_ns)]})


@contextlib.contextmanager
def record(path, device=None, **settings):
    """Time the steps of a loop. settings: columns that tell how the steps ran, such as batch=8."""
    from .device import synchronize
    import torch
    on = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    times = []

    @contextlib.contextmanager
    def step():
        synchronize(on)
        begin = time.perf_counter_ns()
        yield
        synchronize(on)
        times.append(time.perf_counter_ns() - begin)

    yield step
    if times:
        (write_steps if path.endswith(".json") else write_row)(path, times, settings)
