#!/usr/bin/env python3
"""Golden values of tests/unit/partition/test_shares.c, by HiGHS (scipy 1.17.1): for 200 random projects the
soonest end, and the least sum of shares with which the project ends within 1e-9 of it.

    python3 tests/reference/shares_highs.py     (rewrites tests/golden/shares-highs.txt)

Both sides make the projects from the same congruential generator (Knuth's MMIX), so only results are stored.
"""
import os

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "shares-highs.txt")


class Numbers:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


def project(seed):
    """Events in a row, each also after up to two of the 12 before it; about half of the arcs are works."""
    u = Numbers(seed)
    events, groups = 10 + u.below(60), 1 + u.below(5)
    arcs, group = [], []
    for to in range(1, events):
        for k in range(3):
            begin = to - 1 if k == 0 else to - 1 - u.below(min(to, 12))
            if k and u.below(10) < 4:
                continue
            ns, work, cut = 10 + u.below(9000) / 100.0, -1, 0.0
            if u.below(2):
                work, cut = len(group), ns * u.below(101) / 100.0
                group.append(u.below(groups))
            arcs.append((begin, to, work, ns, cut))
    part = (1 + u.below(10)) / 10.0
    budget = [part * max(1, group.count(g)) for g in range(groups)]
    return events, arcs, group, budget


def solve(seed):
    events, arcs, group, budget = project(seed)
    row, column, value, limit = [], [], [], []

    def put(*cells):
        for c, v in cells:
            row.append(len(limit))
            column.append(c)
            value.append(v)
    for begin, to, work, ns, cut in arcs:
        put((begin, 1.0), (to, -1.0), *([(events + work, -cut)] if work >= 0 else []))
        limit.append(-ns)
    for g, most in enumerate(budget):
        put(*[(events + j, 1.0) for j in range(len(group)) if group[j] == g])
        limit.append(most)
    columns = events + len(group)
    matrix = coo_matrix((value, (row, column)), shape=(len(limit), columns)).tocsr()
    bounds = [(0, 0)] + [(0, None)] * (events - 1) + [(0, 1)] * len(group)
    cost = np.zeros(columns)
    cost[events - 1] = 1
    end = linprog(cost, matrix, limit, bounds=bounds, method="highs").fun
    bounds[events - 1] = (0, end * (1 + 1e-9))
    cost = np.zeros(columns)
    cost[events:] = 1
    return end, linprog(cost, matrix, limit, bounds=bounds, method="highs").fun


with open(GOLDEN, "w") as f:
    for seed in range(1, 201):
        f.write("%.9f %.9f\n" % solve(seed))
