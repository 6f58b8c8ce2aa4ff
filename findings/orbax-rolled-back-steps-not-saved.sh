#!/bin/bash
# After a run goes back to an older step, orbax's CheckpointManager does not save until it is past the newest one.
#
# Guess: save() of a step that exists replaces it or raises; at worst it must be deleted first.
# Seen (orbax-checkpoint 0.12.8, jax 0.10.2, CPU, 2026-11-30), saved every 10 steps up to 30, then restored from 10,
#   as after a loss spike: save(20) and save(30) return False, which is also the answer for a step between two
#   intervals. Nothing is said. A restart now takes latest_step(), 30, which is of the branch that was given up. From
#   40 on it saves, beside 20 and 30 of the old branch, which count as its history. save(20, force=True) raises.
# Source: CheckpointManager.should_save() in orbax/checkpoint/checkpoint_manager.py.
# Why it matters: who goes back because a run diverged gets the diverged weights at the next restart.
. "$(dirname "$0")/lib"
packages orbax-checkpoint==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 scipy ml_dtypes opt_einsum absl-py etils \
    tensorstore msgpack nest_asyncio simplejson humanize protobuf aiofiles importlib_resources zipp fsspec pyyaml uvloop \
    typing-extensions psutil
cat >"$work/back.py" <<'P'
import sys
from absl import logging
from jax import numpy as jnp
import orbax.checkpoint as ocp

logging.set_verbosity(logging.FATAL)
options = ocp.CheckpointManagerOptions(save_interval_steps=10, max_to_keep=5, enable_async_checkpointing=False)
manager = ocp.CheckpointManager(sys.argv[1], options=options)

def save(step, branch, **words):
    return manager.save(step, args=ocp.args.StandardSave({"branch": jnp.array(branch)}), **words)

def branch(step):
    return int(manager.restore(step, args=ocp.args.StandardRestore())["branch"])

print("first branch", *(save(step, 1) for step in (10, 20, 25, 30)))
print("back to 10, second branch", *(save(step, 2) for step in (20, 30)), "latest", manager.latest_step(), "of branch",
      branch(manager.latest_step()))
try:
    save(20, 2, force=True)
except Exception as e:
    print("forced", type(e).__name__)
print("on", save(40, 2), "steps", *manager.all_steps(), "of branches", *(branch(step) for step in manager.all_steps()))
manager.close()
P
JAX_PLATFORMS=cpu "$python" "$work/back.py" "$work/checkpoints" 2>/dev/null | expect "first branch True True False True
back to 10, second branch False False latest 30 of branch 1
forced StepAlreadyExistsError
on True steps 10 20 30 40 of branches 1 1 1 2"
