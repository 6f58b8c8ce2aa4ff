#!/usr/bin/env python3
"""The table of speed in docs/measured.md: written from what the benches print, and checked against the code.

    make speed                                   alone on the machine: runs bench_sim and bench_planner, then
    tests/bench/speed_table.py write speed.txt   writes the table, with commit, machine and load
    tests/bench/speed_table.py check             fails where a figure is older than its code by more than it says

The table says how many later commits to the code it allows (--age). It also has a digest of its lines, so
that a figure that somebody changes by hand fails the check.
"""
import argparse
import hashlib
import pathlib
import re
import subprocess
import sys

PAGE = "docs/measured.md"
# The code that bench_sim and bench_planner measure.
CODE = ["sim/step", "partition/step", "partition/schedule", "partition/search", "partition/cost",
        "tests/bench/bench_sim.c", "tests/bench/bench_planner.c"]
BLOCK = re.compile(r"<!-- speed:(.*?)-->\n(.*?)<!-- speed ends -->\n", re.S)
# A line of bench_sim, of bench_planner, and the first line of tests/bench/run.sh.
SIM = re.compile(r"^(?P<more> *)(?P<what>\S.*?) +(?P<got>[\d.]+) (?P<unit>\S+) +target (?P<target>[<>]= \S+) +(ok|slow)$")
PLANNER = re.compile(r"^(?P<model>\S+) +(?P<cluster>\S+) +(?P<batch>\d+) +(?P<frozen>\d+) \| +\S+ +\S+ +(?P<cpu>[\d.]+) ")
MACHINE = re.compile(r"^(?P<machine>\S+, (?P<cores>\d+) cores, .*), load (?P<load>[\d.]+)$")


def git(*words):
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()


def digest(lines):
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def rows_of(text):
    """The machine's line and the rows of the table."""
    machine, rows, case = None, [], ""
    for line in text.splitlines():
        machine = MACHINE.match(line) or machine
        sim, planner = SIM.match(line), PLANNER.match(line)
        if sim:
            what = f"{case}: {sim['what']}" if sim["more"] else sim["what"]  # of the case above
            case = case if sim["more"] else what
            rows.append((what, f"{sim['got']} {sim['unit']}", sim["target"]))
        elif planner:
            frozen = f", F = {planner['frozen']}" if planner["frozen"] != "0" else ""
            rows.append((f"plan {planner['model']} on {planner['cluster']}, batch {planner['batch']}{frozen}",
                         f"{planner['cpu']} ms", "-"))
    return machine, rows


def write(page, bench, age):
    machine, rows = rows_of(bench)
    if not machine or not rows:
        sys.exit("speed_table.py: no machine or no figures in the output of the benches")
    if float(machine["load"]) > 0.2 * int(machine["cores"]):
        sys.exit(f"speed_table.py: load {machine['load']} on {machine['cores']} cores: measure alone")
    if git("status", "--porcelain", "--", *CODE):
        sys.exit("speed_table.py: the measured code is not committed")
    lines = (f"Processor time, one core, {machine['machine']}, load {machine['load']}:\n\n"
             "| what | measured | target |\n|---|--:|--:|\n" +
             "".join(f"| {what} | {got} | {target} |\n" for what, got, target in rows))
    head = f"<!-- speed: commit {git('rev-parse', '--short=12', 'HEAD')} age {age} digest {digest(lines)} -->\n"
    new, count = BLOCK.subn(lambda _: head + lines + "<!-- speed ends -->\n", page)
    if count != 1:
        sys.exit(f"speed_table.py: {PAGE} has {count} tables of speed")
    return new


def check(page):
    found = BLOCK.search(page)
    if not found:
        return f"{PAGE} has no table of speed"
    says = re.fullmatch(r" commit (\w+) age (\d+) digest (\w+) ", found[1])
    if not says:
        figures = re.search(r"^\|", found[2], re.M)
        return f"{PAGE} has figures of speed without a commit" if figures else None
    commit, age, was = says.groups()
    if digest(found[2]) != was:
        return f"{PAGE}: the table of speed is not what speed_table.py wrote"
    later = int(git("rev-list", "--count", f"{commit}..HEAD", "--", *CODE))
    if later > int(age):
        return f"{PAGE}: {later} commits changed the measured code since {commit}; the table allows {age}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["write", "check"])
    parser.add_argument("bench", nargs="?", help="what tests/bench/run.sh printed")
    parser.add_argument("--age", type=int, default=30, help="later commits to the code that the table allows")
    args = parser.parse_args()
    page = pathlib.Path(PAGE)
    text = page.read_text()
    if args.action == "write":
        page.write_text(write(text, pathlib.Path(args.bench).read_text(), args.age))
        return
    why = check(text)
    if why:
        sys.exit(f"speed_table.py: {why}")


if __name__ == "__main__":
    main()
