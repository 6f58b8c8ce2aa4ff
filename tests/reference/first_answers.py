#!/usr/bin/env python3
"""Ten questions of users, each asked with little time and with much: when there is a first plan, and how good the
plan is after 1 s, after 5 s and at the end.

    first_answers.py ELAPSE [FIRST [LAST [BUDGET]]]     (numbers from 1; BUDGET: of the end, 300s)

Prints a row a question: processor milliseconds to the first judged plan, of the whole command; the step after 1 s and 5 s, with
its distance from the best that any of them found, and the processor seconds that it took; the best, and whether
its search was complete. Exit 1 if an answer is more than 10 % away after 1 s or 3 % after 5 s.
"""
import json
import os
import subprocess
import sys

QUESTIONS = [
    ("gpt2-xl", "h100-8x8", 512),
    ("llama3-70b:seq=8192", "h100-8x8", 128),
    ("llama3-70b:seq=8192", "h100-64x8", 1024),
    ("llama3-70b:seq=8192", "h100-512x8", 2048),
    ("llama3-70b:seq=8192", "h100-2048x8", 4096),
    ("llama3-405b:seq=8192", "h100-64x8", 512),
    ("llama3-405b:seq=8192", "h100-512x8", 2048),
    ("llama3-405b:seq=8192", "grand-teton-2048", 2048),
    ("llama3-405b:seq=8192", "h100-2048x8", 2048),
    ("gpt3-175b", "h100-128x8", 1536)]
TIMES = [("1s", 1.10), ("5s", 1.03)]


def ask(elapse, question, budget):
    """The answer, and the processor seconds of the command."""
    model, cluster, batch = question
    command = [elapse, "plan", "--model", model, "--cluster", cluster, "--batch", str(batch), "--dtype", "bf16",
               "--optimizer", "adamw", "--budget", budget, "--json", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as child:
        text = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"exit {child.returncode}: {' '.join(command)}")
    return json.loads(text), used.ru_utime + used.ru_stime


def main():
    elapse = sys.argv[1]
    first, last = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((2, 1), (3, len(QUESTIONS))))
    longest = sys.argv[4] if len(sys.argv) > 4 else "300s"
    bad = 0
    print("  # model                 cluster           batch  first ms   step s" +
          "".join(f"  after {time}            s" for time, _ in TIMES) + "   best s  complete")
    for number in range(first, last + 1):
        question = QUESTIONS[number - 1]
        begin, begin_s = ask(elapse, question, "1ns")
        answers = [ask(elapse, question, time) for time, _ in TIMES]
        end = answers[-1][0] if answers[-1][0]["searched"]["complete"] else ask(elapse, question, longest)[0]
        best = min(answer["step_ns"] for answer in [begin, end] + [a for a, _ in answers])
        row = f"{number:3} {question[0]:21} {question[1]:16} {question[2]:6} {begin_s * 1e3:9.0f} {begin['step_ns'] / 1e9:8.4f}"
        for (answer, seconds), (_, most) in zip(answers, TIMES):
            late = answer["step_ns"] / best
            bad += late > most
            row += f" {answer['step_ns'] / 1e9:8.4f} {(late - 1) * 100:+5.1f} % {seconds:5.2f}"
        print(f"{row} {best / 1e9:8.4f}  {'yes' if end['searched']['complete'] else 'no'}", flush=True)
    print(f"{last - first + 1} questions, {bad} answers too far from the best")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
