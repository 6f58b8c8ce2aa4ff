"""The program `elapse` of this package: run it, read its JSON, turn exit codes into exceptions."""
import json
import os
import subprocess
import sys
from typing import Any, Dict, List, Sequence

_HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.environ.get("ELAPSE_PROGRAM", os.path.join(_HERE, "bin", "elapse"))
LIBRARY = os.path.join(_HERE, "lib", "libelapse.so.0")


class ElapseError(Exception):
    """A question without an answer. `hint` is the remedy where one is known, else ""."""
    code = 3

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message + (f" ({hint})" if hint else ""))
        self.message, self.hint = message, hint


class Infeasible(ElapseError):
    """Exit code 1: a sound question whose answer is no; no plan fits the memory."""
    code = 1


class BadInput(ElapseError, ValueError):
    """Exit code 2: an unknown name or key, a value out of range, malformed content."""
    code = 2


class Unavailable(ElapseError, OSError):
    """Exit code 3: a missing or unreadable file, device or network."""
    code = 3

    __init__ = ElapseError.__init__


class Unfinished(ElapseError):
    """Exit code 4: the search ran out of time before it had a plan."""
    code = 4


_BY_CODE = {kind.code: kind for kind in (Infeasible, BadInput, Unavailable, Unfinished)}


def run(*words: Any) -> str:
    """What the program prints for these words. Raises by its exit code."""
    args = [PATH, *map(str, words)]
    done = subprocess.run(args, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.strip().split("\n")
    said = next((line[len("elapse: "):] for line in lines if line.startswith("elapse: ")), lines[-1])
    hint = next((line[len("hint: "):] for line in lines if line.startswith("hint: ")), "")
    raise _BY_CODE.get(done.returncode, ElapseError)(said or f"exit code {done.returncode}", hint)


def ask(*words: Any) -> Dict[str, Any]:
    """One JSON object."""
    return json.loads(run(*words, "--json"))


def ask_lines(*words: Any) -> List[Dict[str, Any]]:
    """A JSON object a line, as sweeps print them."""
    return [json.loads(line) for line in run(*words, "--json").splitlines() if line]


def word(value: Any) -> str:
    """A value of a job key as the command line has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def sets(settings: Dict[str, Any]) -> Sequence[str]:
    """Job keys as --set."""
    return [part for key, value in settings.items() for part in ("--set", f"{key}={word(value)}")]


def main() -> None:
    """The command `elapse`."""
    os.execv(PATH, [PATH, *sys.argv[1:]])
