#!/usr/bin/env python3
"""Reads a Chrome trace of ours as a viewer would and checks what belongs together.

    trace_reader.py TRACE [ANSWER]

Every thread and process has a name, the slices of a thread follow one another, each arrow has two ends
of which one lies in the slice of a send and the other, later, in its receive or in the pass that uses
it. ANSWER is what `elapse sim --step --json` printed about the step: its bubble and its memory are those of
the counters. Prints a line a group of processes.
Where TRACE_PROCESSOR names Perfetto's trace_processor_shell, that reads the file too, through PyPI's
package perfetto, and must count as many slices, arrows and samples.
"""
import collections
import json
import os
import sys

PASSES = ("compute", "optimizer")
ROUNDING_US = 2.0  # of a device's clock


def fail(text):
    sys.exit(sys.argv[1] + ": " + text)


def inside(slices, at):
    """The slice of a thread that is open at a time; the last one that begins at or before it."""
    found = [s for s in slices if s["ts"] <= at <= s["ts"] + s["dur"]]
    return max(found, key=lambda s: s["ts"]) if found else None


def check_arrows(events, threads):
    ends = collections.defaultdict(dict)
    for e in events:
        if e["ph"] in "sf":
            if e["ph"] in ends[e["id"]]:
                fail("arrow %d has two ends '%s'" % (e["id"], e["ph"]))
            ends[e["id"]][e["ph"]] = e
    for number, pair in ends.items():
        if len(pair) != 2:
            fail("arrow %d has one end" % number)
        send, receive = (inside(threads[pair[p]["pid"], pair[p]["tid"]], pair[p]["ts"]) for p in "sf")
        if not send or not receive:
            fail("an end of arrow %d is in no slice" % number)
        a, b = send["args"], receive["args"]
        gradient = pair["s"]["name"] == "gradient"
        kinds = {"RECV_GRAD", "B", "I"} if gradient else {"RECV_ACT", "F", "Z"}
        if a["op"] != ("SEND_GRAD" if gradient else "SEND_ACT") or b["op"] not in kinds:
            fail("arrow %d goes from %s to %s" % (number, send["name"], receive["name"]))
        if a["microbatch"] != b["microbatch"] or b["stage"] - a["stage"] != (-1 if gradient else 1):
            fail("arrow %d goes from %s to %s" % (number, send["name"], receive["name"]))
        if receive["ts"] < send["ts"] - 0.001:
            fail("arrow %d goes back in time" % number)
    return len(ends)


def bubble(samples, pids, num_ranks):
    """Idle time over all time of the ranks of a group, by the counter."""
    idle, end = 0.0, 0.0
    for pid in pids:
        mine = sorted((e["ts"], e["args"]["idle ranks"]) for e in samples if e["pid"] == pid and e["name"] == "bubble")
        if mine[-1][1] != 0:
            fail("idle ranks behind the end of the step")
        idle += sum((b[0] - a[0]) * a[1] for a, b in zip(mine, mine[1:]))
        end = max(end, mine[-1][0])
    return idle / (num_ranks * end)


def with_perfetto(path, events):
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
    shell = TraceProcessorConfig(bin_path=os.environ["TRACE_PROCESSOR"])
    with TraceProcessor(trace=path, config=shell) as processor:
        for table, phase in (("slice", "X"), ("flow", "s"), ("counter", "C")):
            have = next(iter(processor.query("select count(*) as n from " + table))).n
            want = sum(e["ph"] == phase for e in events)
            if have != want:
                fail("trace_processor has %d rows in '%s', wanted %d" % (have, table, want))
        lost = list(processor.query("select name, value from stats where severity = 'error' and value > 0"))
        if lost:
            fail("trace_processor: " + ", ".join("%s %d" % (s.name, s.value) for s in lost))
    print("trace_processor agrees")


def main():
    path = sys.argv[1]
    events = json.load(open(path))["traceEvents"]
    names, processes, threads = {}, {}, collections.defaultdict(list)
    for e in events:
        if e["ph"] == "M" and e["name"] == "thread_name":
            names[e["pid"], e["tid"]] = e["args"]["name"]
        elif e["ph"] == "M" and e["name"] == "process_name":
            processes[e["pid"]] = e["args"]["name"]
        elif e["ph"] == "X":
            threads[e["pid"], e["tid"]].append(e)
    if len(set(names[k] + processes[k[0]] for k in names)) != len(names):
        fail("two threads of one name")
    for key, slices in threads.items():
        if key not in names or key[0] not in processes:
            fail("a thread without a name")
        slices.sort(key=lambda s: s["ts"])
        for a, b in zip(slices, slices[1:]):
            slack = ROUNDING_US if a["cat"] in PASSES else 0.001
            if b["ts"] < a["ts"] + a["dur"] - slack:
                fail("%s: %s and %s overlap" % (names[key], a["name"], b["name"]))
    num_arrows = check_arrows(events, threads)
    samples = [e for e in events if e["ph"] == "C"]
    answer = json.load(open(sys.argv[2])) if len(sys.argv) > 2 else None
    for group in sorted({name.split(" pipeline ")[0] for name in processes.values()}):
        pids = [p for p in processes if processes[p].startswith(group + " pipeline ")]
        ranks = {(p, names[p, t].split()[1]) for p, t in names if p in pids}
        share = bubble(samples, pids, len(ranks))
        most = max((e["args"]["bytes"] for e in samples if e["pid"] in pids and "memory" in e["name"]), default=0)
        print("%s: %d pipelines, %d ranks, %d slices, bubble %.2f %%, memory %d bytes" %
              (group, len(pids), len(ranks), sum(len(threads[k]) for k in threads if k[0] in pids), 100 * share, most))
        if not answer or group != "simulated":
            continue
        if abs(share - answer["bubble_fraction"]) > 1e-4:
            fail("bubble %.6f, the answer has %.6f" % (share, answer["bubble_fraction"]))
        if most != max(d["peak_bytes"] for d in answer["devices"]):
            fail("memory %d, the answer has %d" % (most, max(d["peak_bytes"] for d in answer["devices"])))
    print("%d arrows" % num_arrows)
    if os.environ.get("TRACE_PROCESSOR"):
        with_perfetto(path, events)


main()
