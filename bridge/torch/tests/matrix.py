"""Measure a model's plans of two ranks: each schedule and count of micro-batches, and the two-stage cuts near the
planned one, which have no prediction. Under torchrun with 2 ranks; a JSON row each on stdout. A time limit leaves out
the last rows.

    matrix.py FOLDER CLUSTER.json [M...]    FOLDER: that `elapse-torch profile models.py` has written
                                            M: counts of micro-batches (4 2 8); without 4 no cuts are tried"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

from elapse_torch import cmd_run, program
from elapse_torch.chain import chain_of
from elapse_torch.cmd_profile import make_optimizer
from elapse_torch.errors import BridgeError
from elapse_torch.files import percentile
from elapse_torch.layout import Layout, read_plan
from elapse_torch.source import load

KINDS = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zb-h1": 1}
STEPS, WARM_UP = 7, 2


class Args:
    model, inputs, seed = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.py"), None, 1


def plan_of(folder, cluster, **settings):
    """rank 0 asks `elapse plan`; all ranks read the file."""
    path, answer = f"{folder}/plan.json", [None]
    if dist.get_rank() == 0:
        words = ["plan", f"{folder}/job.json", "--set", f"cluster={cluster}", "-o", path]
        for key, value in settings.items():
            words += ["--set", f"pipeline.{key}={value}"]
        try:
            program.ask(*words)
        except BridgeError as error:
            answer = [str(error)]
    dist.broadcast_object_list(answer, 0)
    if answer[0]:
        raise BridgeError(answer[0])
    return read_plan(path)


class Bench:
    def __init__(self):
        self.source = load(Args.model, None, 1)
        self.model = self.source.model.train()
        self.first = {n: v.clone() for n, v in self.model.state_dict().items()}
        self.chains = {}

    def run(self, plan, check):
        """Median step [ns] of the slowest rank, and the differences from the whole model."""
        self.model.load_state_dict(self.first)
        size = plan["microbatch_size"]
        torch.manual_seed(1)
        if size not in self.chains:
            self.chains[size] = chain_of(self.model, *self.source.batch(size)[:2])
        layout = Layout(plan, self.chains[size], torch.device("cpu"), self.source.loss)
        optimizer = make_optimizer("adamw")(list(layout.weights.values()))
        batches = [self.source.batch(plan["batch"]) for _ in range(plan["replicas"])]
        times, difference = [], None
        for step in range(WARM_UP + STEPS):
            begin = time.perf_counter_ns()
            loss = layout.forward_backward(*batches[layout.replica])
            if check and step == 0:
                difference = cmd_run.compare(layout, self.source, Args, torch.device("cpu"), batches, loss)
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.perf_counter_ns() - begin)
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, percentile(times[WARM_UP:], .5))
        for p in self.model.parameters():
            p.grad = None
        return max(found), difference


def main():
    folder, cluster, *counts = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    bench = Bench()

    def tell(row):
        if dist.get_rank() == 0:
            print(json.dumps(row), flush=True)

    def one(plan, check=True, **more):
        measured, difference = bench.run(plan, check)
        tell({**more, "K": plan["pipeline_length"], "M": plan["microbatches"], "kind": plan["schedule"],
              "cut": plan["cut"], "measured_ms": measured / 1e6, "difference": difference,
              **({} if more else {"predicted_ms": plan["step_ns"] / 1e6, "error": plan["step_ns"] / measured - 1})})
        return measured
    for count in map(int, counts or (4, 2, 8)):
        planned = None
        for stages, kinds in ((2, KINDS), (1, {"gpipe": 1})):
            for kind, chunks in kinds.items():
                try:
                    plan = plan_of(folder, cluster, num_stages=stages, num_replicas=3 - stages, schedule=kind,
                                   chunks=chunks, num_microbatches=count)
                except BridgeError as error:
                    tell({"K": stages, "M": count, "kind": kind, "refused": str(error)})
                    continue
                one(plan, check=count == 4)
                planned = plan if (stages, kind, count) == (2, "1f1b", 4) else planned
        if planned:
            items = sum(planned["cut"])
            for first in range(max(1, planned["cut"][0] - 2), min(items, planned["cut"][0] + 3)):
                plan = dict(planned, cut=[first, items - first])
                one(plan, check=False, cuts=True, planned=first == planned["cut"][0])
    dist.destroy_process_group()


main()
