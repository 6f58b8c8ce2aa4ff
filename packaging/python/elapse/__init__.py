"""Plan and predict pipeline training of transformers.

    import elapse
    plan = elapse.plan(model="llama3-8b", cluster="dgx-h100-2", batch=512, dtype="bf16")
    step = elapse.simulate(plan)
    rows = elapse.sweep("train.batch.global", [64, 128], model="gpt2", cluster="a100-1x8")

Every answer is that of the program `elapse`, which this package holds; `.data` is its whole JSON object.
Times are integer nanoseconds (_ns), sizes bytes (_bytes), rates per second (_per_s). Errors are Infeasible,
BadInput, Unavailable and Unfinished, the program's exit codes 1 to 4."""
from ._answers import Calibration, Device, Epoch, Freezing, Op, Plan, Run, Schedule, Step
from ._calls import calibrate, freeze, plan, schedule, simulate, sweep
from ._program import PATH, BadInput, ElapseError, Infeasible, Unavailable, Unfinished

__all__ = ["BadInput", "Calibration", "Device", "ElapseError", "Epoch", "Freezing", "Infeasible", "Op", "PATH", "Plan", "Run",
           "Schedule", "Step", "Unavailable", "Unfinished", "calibrate", "freeze", "plan", "schedule", "simulate", "sweep"]
