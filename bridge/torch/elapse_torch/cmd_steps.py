"""elapse-torch steps LOG: step times of a log, as a row for `elapse calibrate --csv`. Without PyTorch."""
import argparse
import re

from .errors import BridgeError
from .files import percentile
from .record import WARM_UP, write_row

UNITS = {"s": 1e9, "ms": 1e6, "us": 1e3}


def main(argv):
    p = argparse.ArgumentParser(prog="elapse-torch steps", description="the median step of a log")
    p.add_argument("log", metavar="LOG")
    p.add_argument("--pattern", required=True, metavar="REGEX",
                   help="finds a step's time in a line; its first group is the number")
    p.add_argument("--unit", choices=UNITS, default="s", help="of the number (default s)")
    p.add_argument("--set", action="append", default=[], metavar="COLUMN=V",
                   help="a column that tells how the steps ran, such as replicas=2")
    p.add_argument("-o", dest="out", default="steps.csv", help="(default steps.csv)")
    args = p.parse_args(argv)
    try:
        wanted = re.compile(args.pattern)
        with open(args.log, encoding="utf-8", errors="replace") as f:
            found = [m.group(1) for m in map(wanted.search, f) if m]
        times = [int(float(text) * UNITS[args.unit]) for text in found]
    except OSError as error:
        raise BridgeError(f"cannot read log '{args.log}': {error.strerror}", code=3) from None
    except (re.error, IndexError, ValueError) as error:
        raise BridgeError(f"--pattern '{args.pattern}': {error}",
                          hint=r"for example 'step_time: ([0-9.]+)'") from None
    if not times or min(times) <= 0 or not all("=" in s for s in args.set):
        raise BridgeError("--set must be COLUMN=V" if times and min(times) > 0 else
                          f"'{args.log}' has no line with a step's time above 0")
    write_row(args.out, times, dict(s.split("=", 1) for s in args.set))
    kept = times[WARM_UP:] or times
    print(f"{len(times)} steps, median {percentile(kept, .5) / 1e6:.3f} ms: {args.out}")
    return 0
