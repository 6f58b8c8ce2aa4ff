#!/usr/bin/env python3
"""A second, slow answer for `elapse sim --step`, from textbook definitions of the schedules.

    step_oracle.py ELAPSE [CASES [SEED]]

Random steps (gpipe, 1f1b, interleaved, zb-h1; frozen prefixes, recompute, replicas) are timed here
by repeated relaxation over (op, stage, micro-batch), and compared to the nanosecond; where transfers
meet on ports or an uplink, by a fluid model in exact fractions, and compared to within four nanoseconds
a transfer (the simulator keeps whole nanoseconds and bytes a second; long chains within 0.2 %). Nothing is shared with the
simulator's code. Exit 1 and the command lines of what differs.
"""
import json
import random
import subprocess
import sys
from fractions import Fraction


# ---- op lists: a list of (kind, stage, micro-batch) a rank ------------------------------------------
def gpipe(k, m):
    return [[("F", s, i) for i in range(m)] + [("B", s, i) for i in range(m)] for s in range(k)]


def one_f_one_b(k, m):
    lists = []
    for s in range(k):
        warm = min(m, k - s - 1)
        ops = [("F", s, i) for i in range(warm)]
        for i in range(m):
            if warm + i < m:
                ops.append(("F", s, warm + i))
            ops.append(("B", s, i))
        lists.append(ops)
    return lists


def interleaved(k, m, v):
    """Narayanan et al. 2021: groups of k micro-batches, chunk after chunk; at m == k as PyTorch."""
    lists, total = [], m * v
    for r in range(k):
        def op(i, kind):
            chunk = i % (k * v) // k
            return (kind, (chunk if kind == "F" else v - 1 - chunk) * k + r,
                    i // (k * v) * k + i % k)
        warm = min(total, (k - r - 1) * 2 + (v - 1) * k)
        ops = [op(i, "F") for i in range(warm)]
        for i in range(total):
            if warm + i < total:
                ops.append(op(warm + i, "F"))
            ops.append(op(i, "B"))
        lists.append(ops)
    return lists


def zb_h1(k, m):
    """Qi et al. 2023, figure 3: 1F1B whose backward is split; rank s puts W off by s micro-batches."""
    lists = []
    for s in range(k):
        warm = min(m, k - s - 1)
        ops, weights = [("F", s, i) for i in range(warm)], 0
        for i in range(m):
            if warm + i < m:
                ops.append(("F", s, warm + i))
            ops.append(("I", s, i))
            if i >= s:
                ops.append(("W", s, weights))
                weights += 1
        ops += [("W", s, i) for i in range(weights, m)]
        lists.append(ops)
    return lists


# ---- a case: lists, costs, what an op waits for -----------------------------------------------------
class Case:
    def __init__(self, rng, shared):
        self.kind = rng.choice(["gpipe", "1f1b", "interleaved", "zb-h1"])
        self.v = rng.choice([2, 3]) if self.kind == "interleaved" else 1
        self.k = rng.randint(2 if self.v > 1 else 1, 4 if shared else 8)
        self.m = self.k * rng.randint(1, 3) if self.v > 1 else rng.randint(1, 6 if shared else 24)
        self.replicas = rng.choice([1, 2, 3]) if shared or rng.random() < 0.3 else 1
        self.stages = self.k * self.v
        per = rng.choice([1, 2])
        self.layers = self.stages * per
        self.f, self.i, self.w = (rng.randint(1, 3000) * 1000 for _ in range(3))
        self.rest = rng.randint(0, self.i // 1000) * 1000
        self.keep = rng.randint(0, self.f // 1000) * 1000  # of f, for the stash
        # rings and messages meet: exact only when messages are empty
        self.act = rng.choice([100000, 5000000, 30000000]) if shared else \
            rng.choice([0, 1000, 1 << 20, 37777777]) if self.replicas == 1 else 0
        self.params = rng.choice([0, 1000, 999999])
        self.latency = rng.choice([0, 5000, 123456])
        self.link = rng.choice([1, 16]) * 10**9 if shared else 16 * 10**9
        self.uplink = rng.choice([1, 4, 16]) * 10**9 if shared else 16 * 10**9
        self.nodes = self.replicas if shared else 1
        extra = rng.random()
        self.frozen = rng.randint(1, self.layers - 1) \
            if extra < 0.25 and self.layers > 1 and self.v == 1 else 0
        self.recompute = 0.25 <= extra < 0.4 and self.kind in ("gpipe", "1f1b")
        self.lists = {"gpipe": lambda: gpipe(self.k, self.m), "zb-h1": lambda: zb_h1(self.k, self.m),
                      "1f1b": lambda: one_f_one_b(self.k, self.m),
                      "interleaved": lambda: interleaved(self.k, self.m, self.v)}[self.kind]()
        self.active = [max(0, (s + 1) * per - max(s * per, self.frozen)) for s in range(self.stages)]
        # a stage that trains one layer only, the first active one, has no I: W does what is left of it
        self.no_input = [self.frozen > 0 and self.active[s] == 1 and
                         s * per <= self.frozen < (s + 1) * per for s in range(self.stages)]
        for r, ops in enumerate(self.lists):
            ops = [o for o in ops if o[0] == "F" or self.active[o[1]]]
            ops = [o for o in ops if o[0] != "I" or not self.no_input[o[1]]]
            if self.recompute:
                ops = [x for o in ops for x in ([("R", *o[1:]), o] if o[0] == "B" else [o])]
            self.lists[r] = ops
        self.cost = {}
        for s in range(self.stages):
            first = self.frozen > 0 and s * per <= self.frozen < (s + 1) * per
            # nobody wants the gradient of the first active layer's input
            back = self.i * (self.active[s] - first) + self.rest * first
            kept = 0 if self.recompute else self.active[s]
            self.cost["F", s] = self.f * per - self.keep * (per - kept)
            self.cost["R", s] = self.f * per
            self.cost["I", s] = back
            self.cost["W", s] = self.w * self.active[s] + (back if self.no_input[s] else 0)
            self.cost["B", s] = back + self.w * self.active[s]
        self.back = "I" if self.kind == "zb-h1" else "B"

    def waits(self, op):
        """(op waited for, does a message lie between)."""
        kind, s, i = op
        if kind == "F" and s > 0:
            return [(("F", s - 1, i), True)]
        if (kind in "BI" or kind == "W" and self.no_input[s]) and s < self.stages - 1:
            return [((self.back, s + 1, i), True)]
        return []

    def command(self, elapse):
        args = [elapse, "sim", "--step", "--json", "--model",
                f"uniform:layers={self.layers},fwd={self.f}ns,bwd_input={self.i}ns,"
                f"bwd_weight={self.w}ns,bwd_rest={self.rest}ns,fwd_stash={self.keep}ns,act={self.act}B,"
                f"params={self.params}",
                "--cluster", f"{self.nodes}x{self.k * self.replicas // self.nodes}",
                "--latency", f"{self.latency}ns", "--link", f"{self.link}Bps",
                "--uplink", f"{self.uplink}Bps", "--stages", str(self.k),
                "--replicas", str(self.replicas), "--microbatches", str(self.m),
                "--schedule", self.kind,
                "--cut", ",".join([str(self.layers // self.stages)] * self.stages)]
        if self.v > 1:
            args += ["--chunks", str(self.v)]
        if self.frozen:
            args += ["--frozen", str(self.frozen)]
        if self.recompute:
            args += ["--recompute", "stage-early"]
        return args

    def grad_bytes(self, s):
        return 4 * self.params * self.active[s]


def relax(c):
    """Nobody shares: fixed times of messages, to the nanosecond."""
    per_node = c.k * c.replicas // c.nodes

    def rate(a, b):
        return min(c.link, c.uplink) if a // per_node != b // per_node else c.link

    def wire(p, a, b):
        return c.latency + -(-c.act * 10**9 // rate(c.device[p, a], c.device[p, b])) if a != b else 0

    done, last, n = {}, 0, c.replicas
    for p in range(n):
        end, at, clock = {}, [0] * c.k, [0] * c.k
        moved = True
        while moved:
            moved = False
            for r, ops in enumerate(c.lists):
                while at[r] < len(ops) and all(d in end for d, _ in c.waits(ops[at[r]])):
                    op = ops[at[r]]
                    start = max([clock[r]] + [end[d] + wire(p, d[1] % c.k, r) for d, _ in c.waits(op)])
                    clock[r] = end[op] = start + c.cost[op[0], op[1]]
                    at[r] += 1
                    moved = True
        assert all(a == len(ops) for a, ops in zip(at, c.lists)), "deadlock"
        last = max(last, *clock)
        for (kind, stage, _), t in end.items():
            if kind != "F":
                done[stage] = max(done.get(stage, 0), t)
    for s in range(c.stages if n > 1 else 0):
        if c.grad_bytes(s):
            places = [c.device[p, s % c.k] for p in range(n)]
            slowest = min(rate(a, b) for a in places for b in places)
            ring = -(-2 * (n - 1) * c.grad_bytes(s) * 10**9 // (n * slowest)) + 2 * (n - 1) * c.latency
            last = max(last, done[s] + ring)
    return last


def fluid(c):
    """Flows share ports and uplinks max-min fairly; exact fractions."""
    n, per_node = c.replicas, c.k * c.replicas // c.nodes
    procs = [(p, r) for p in range(n) for r in range(c.k)]
    at, busy = dict.fromkeys(procs, 0), dict.fromkeys(procs)
    end, arrived, flows, now, last = {}, set(), [], Fraction(0), Fraction(0)
    left = {s: sum(o[1] == s and o[0] != "F" for o in c.lists[s % c.k]) * n for s in range(c.stages)}

    def hops(path):
        use = {}
        for a, b in path:
            for key in [("out", a), ("in", b)]:
                use[key] = use.get(key, 0) + 1
            if a // per_node != b // per_node:
                for key in [("up", a // per_node), ("down", b // per_node)]:
                    use[key] = use.get(key, 0) + 1
        return use

    def capacity(key):
        return Fraction(c.link if key[0] in ("out", "in") else c.uplink, 10**9)

    def rates(active):
        rate, room, free = {}, {}, set(range(len(active)))
        for flow in active:
            for key in flow["use"]:
                room[key] = capacity(key)
        while free:
            level = min(room[key] / sum(active[i]["use"].get(key, 0) for i in free)
                        for key in room if any(key in active[i]["use"] for i in free))
            full = [key for key in room if any(key in active[i]["use"] for i in free) and
                    room[key] == level * sum(active[i]["use"].get(key, 0) for i in free)]
            for i in [i for i in free if any(key in active[i]["use"] for key in full)]:
                rate[i] = level
                free.discard(i)
                for key, times in active[i]["use"].items():
                    room[key] -= level * times
        return rate

    while True:
        for p, r in procs:  # whatever can start does, and may end at once
            while busy[p, r] is None and at[p, r] < len(c.lists[r]):
                op = c.lists[r][at[p, r]]
                if not all((p, d) in end and (d[1] % c.k == r or (p, d) in arrived)
                           for d, _ in c.waits(op)):
                    break
                busy[p, r] = now + c.cost[op[0], op[1]]
                at[p, r] += 1
        active = [f for f in flows if f["from"] <= now]
        rate = rates(active)
        times = [t for t in busy.values() if t is not None] + \
            [f["from"] for f in flows if f["from"] > now] + \
            [now + f["left"] / rate[i] for i, f in enumerate(active)]
        if not times:
            break
        then = min(times)
        for i, f in enumerate(active):
            f["left"] -= rate[i] * (then - now)
        now = last = then
        for f in [f for f in flows if f["from"] <= now and f["left"] == 0]:
            flows.remove(f)
            if f["what"]:
                arrived.add(f["what"])
        for p, r in procs:
            if busy[p, r] == now:
                busy[p, r] = None
                op = c.lists[r][at[p, r] - 1]
                kind, s, _ = op
                end[p, op] = now
                to = s + 1 if kind == "F" else s - 1
                if kind in "FBI" and 0 <= to < c.stages and to % c.k != r and \
                        (kind == "F" or c.active[to]):
                    flows.append({"what": (p, op), "from": now + c.latency,
                                  "left": Fraction(c.act), "use": hops([(c.device[p, r],
                                                                         c.device[p, to % c.k])])})
                if kind != "F":
                    left[s] -= 1
                if kind != "F" and left[s] == 0 and n > 1 and c.grad_bytes(s):
                    ring = [(c.device[q, r], c.device[(q + 1) % n, r]) for q in range(n)]
                    flows.append({"what": None, "from": now + 2 * (n - 1) * c.latency,
                                  "left": Fraction(2 * (n - 1) * c.grad_bytes(s), n),
                                  "use": hops(ring)})
        flows = [f for f in flows if not (f["left"] == 0 and f["from"] <= now and
                                          (not f["what"] or arrived.add(f["what"]) is None))]
    return last


def main():
    elapse, cases = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 300
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    wrong = met = 0
    for number in range(cases):
        c = Case(rng, shared=number % 3 == 2)
        done = subprocess.run(c.command(elapse), capture_output=True, text=True, check=False)
        answer = json.loads(done.stdout) if done.returncode == 0 else {}
        got = answer.get("step_ns", -1)
        c.device = {(d["replica"], d["rank"]): d["device"] for d in answer.get("devices", [])}
        if not c.device:
            wrong += 1
            print("no answer:", " ".join(c.command(elapse)), done.stderr.strip())
            continue
        if answer.get("links_shared"):
            met += 1
            want = fluid(c)
            # a nanosecond of rounding moves who shares with whom: in long chains it grows
            near = 2 + 4 * c.m * c.stages * c.replicas if c.m * c.stages <= 60 else want / 500
            good = abs(got - want) <= near
            want = float(want)
        else:
            want = relax(c)
            good = got == want
        if not good:
            wrong += 1
            print("differs: simulated", got, "oracle", want, " ".join(c.command("elapse")),
                  done.stderr.strip())
    print(f"{cases} steps, {met} with shared links, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
