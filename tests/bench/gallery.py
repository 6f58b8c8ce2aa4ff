#!/usr/bin/env python3
"""The figures of docs/gallery and README's first picture: recorded by one command, and checked against the code.

    make -j && python3 tests/bench/gallery.py record    alone on the machine, with MPI, gnuplot and Chromium

Recording runs the blocks of README.md and docs/gallery.md in full (tests/docs.sh), copies the figures that they
draw, takes the pictures of the report, and writes what the pages say of the recording: the lines between the
comments "gallery:" and "gallery ends", and the factor of README's caption.

    python3 tests/bench/gallery.py check      fails where the figures are older than the code that draws them by more
                                              commits than their caption allows, or are not those of the recording
    python3 tests/bench/gallery.py factor     fails where README's factor is not that of `elapse sim`
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, "tests/e2e")
from speed_table import digest, git  # noqa: E402

PAGE, FOLDER = pathlib.Path("docs/gallery.md"), pathlib.Path("docs/gallery")
CODE = ["plots", "cli/figures"]  # what draws
HERO = "examples/elastic/llama2-7b.json"
REPORTS = {"report-1200.png": 1200, "report-400.png": 400}
BLOCK = re.compile(r"<!-- gallery: commit (\w+) digest (\w+) -->\n(.*?)<!-- gallery ends -->\n", re.S)
AGE = re.compile(r"at most (\d+) later\s+changes")
FACTOR = re.compile(r"[\d.]+( times as fast as the best static plan)")


def elapse(*words):
    return subprocess.run(["elapse", *words], capture_output=True, text=True, check=True).stdout


def pictures():
    return digest("".join(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
                          for path in sorted(FOLDER.iterdir())))


def factor():
    run = json.loads(elapse("sim", HERO, "--json", "--quiet"))
    return f"{run['tuned_baseline_ns'] / run['total_ns']:.2f}"


def check():
    found = BLOCK.search(PAGE.read_text())
    if not found:
        return f"{PAGE} does not say when its figures were recorded"
    commit, was, says = found.groups()
    age = AGE.search(says)
    if not age:
        return f"{PAGE} does not say how old its figures may be"
    if pictures() != was:
        return f"{FOLDER} is not what gallery.py recorded"
    later = int(git("rev-list", "--count", f"{commit}..HEAD", "--", *CODE))
    if later > int(age[1]):
        return f"{PAGE}: {later} commits changed {' and '.join(CODE)} since {commit}; its caption allows {age[1]}"
    return None


def check_factor():
    says = re.search(FACTOR, pathlib.Path("README.md").read_text())
    return None if says and says[0].startswith(factor() + " ") else f"README.md says '{says and says[0]}', elapse sim {factor()}"


def machine():
    model = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return f"{os.cpu_count()} cores, {model[1] if model else os.uname().machine}"


def take_reports(work):
    from chromium import Chromium
    elapse("report", "examples/paper/vit.json", "-o", str(work / "report.html"))
    with Chromium() as browser:
        browser.load("Page.navigate", url=(work / "report.html").resolve().as_uri())
        for name, width in REPORTS.items():
            browser.picture(str(work / name), width)


def record(age):
    load = os.getloadavg()[0]
    if load > 0.2 * os.cpu_count():
        sys.exit(f"gallery.py: load {load:.2f} on {os.cpu_count()} cores: record alone")
    if git("status", "--porcelain", "--", *CODE):
        sys.exit("gallery.py: the code that draws is not committed")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        sys.exit("gallery.py: no Chromium for the pictures of the report (apt-get install chromium)")
    with tempfile.TemporaryDirectory() as kept:
        work = pathlib.Path(kept)
        take_reports(work)
        subprocess.run(["bash", "tests/docs.sh", "full"], check=True,
                       env={**os.environ, "FILE": f"README.md {PAGE}", "KEEP": kept})
        for path in FOLDER.iterdir():  # at the end, because the pages' tests compare the folder with its digest
            shutil.copyfile(work / path.name, path)
        configs = json.loads((work / "matrix.json").read_text())["configs"]
    errors = [abs(c["error"]) for c in configs if not c["noisy"]] or [float("nan")]
    says = (f"Recorded on {datetime.date.today()} with nothing else running (load {load:.2f}; {machine()}). The code that\n"
            f"draws them (plots, cli/figures) has had at most {age} later changes. Of the {len(configs)} configurations of the\n"
            f"last figure {len(configs) - len(errors)} were noisy; the predictions of the others are off by "
            f"{100 * statistics.median(errors):.1f} % in the\nmedian and {100 * max(errors):.1f} % at worst.\n")
    head = f"<!-- gallery: commit {git('rev-parse', '--short=12', 'HEAD')} digest {pictures()} -->\n"
    PAGE.write_text(BLOCK.sub(lambda _: head + says + "<!-- gallery ends -->\n", PAGE.read_text()))
    readme = pathlib.Path("README.md")
    readme.write_text(FACTOR.sub(factor() + r"\1", readme.read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "check", "factor"])
    parser.add_argument("--age", type=int, default=30, help="later commits to what draws that the caption allows")
    args = parser.parse_args()
    bin_folder = os.path.abspath(os.environ.get("ELAPSE_BIN", "build/bin"))
    os.environ["PATH"] = f"{bin_folder}:{os.environ['PATH']}"
    why = record(args.age) if args.action == "record" else check() if args.action == "check" else check_factor()
    if why:
        sys.exit(f"gallery.py: {why}")


main()
