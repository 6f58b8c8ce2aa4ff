"""The `elapse` program, for answers that are no decisions of a run: op lists, runs, profiles."""
import importlib.util
import json
import os
import shutil
import subprocess

from .errors import BridgeError


def _packaged():
    """The program of the package `elapse`, if it is installed."""
    spec = importlib.util.find_spec("elapse")
    found = os.path.join(os.path.dirname(spec.origin), "bin", "elapse") if spec and spec.origin else ""
    return found if os.path.exists(found) else None


def path():
    folder = os.environ.get("ELAPSE_BIN")
    found = os.path.join(folder, "elapse") if folder else _packaged() or shutil.which("elapse")
    if not found or not os.path.exists(found):
        raise BridgeError("no program 'elapse'", code=3,
                          hint="put it in PATH, or its folder in ELAPSE_BIN")
    return found


def ask(*words):
    """Its stdout. BridgeError has its message and exit code."""
    done = subprocess.run([path(), *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"elapse ended with {done.returncode}"]
        raise BridgeError(lines[0].replace("elapse: ", "", 1), code=done.returncode,
                          hint="".join(x[6:] for x in lines[1:2] if x.startswith("hint: ")))
    return done.stdout


def op_csv(kind, stages, microbatches, chunks):
    return ask("schedule", "--kind", kind, "--stages", stages, "--microbatches", microbatches,
               "--chunks", chunks, "--csv")
