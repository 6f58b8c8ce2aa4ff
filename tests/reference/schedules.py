#!/usr/bin/env python3
"""Orders of PyTorch's own pipelining schedules, as facts to compare ours with.

Writes tests/golden/torch_schedules.txt: for each case a line "# KIND K M V" and the schedule's CSV
(a row a rank, bubbles left out). Needs torch >= 2.9 with torch.distributed.pipelining:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch==2.9.1 numpy
    /tmp/venv/bin/python tests/reference/schedules.py > tests/golden/torch_schedules.txt
"""
import sys

import torch
from torch.distributed.pipelining import schedules as ts
from torch.distributed.pipelining.stage import _PipelineStageBase


class Stage(_PipelineStageBase):
    """What the schedule classes look at; nothing is ever run."""

    def __init__(self, index, num_stages, group_size):
        self.stage_index = index
        self.stage_index_to_group_rank = {i: i % group_size for i in range(num_stages)}
        self.num_stages = num_stages
        self.group_size = group_size
        self.group_rank = index % group_size
        self.group = None
        self.has_backward = True
        self.device = torch.device("cpu")
        self.submod = None

    def _create_grad_recv_info(self, *args):
        raise NotImplementedError

    def _prepare_forward_infra(self, *args):
        raise NotImplementedError

    @property
    def is_first(self):
        return self.stage_index == 0

    @property
    def is_last(self):
        return self.stage_index == self.num_stages - 1


def loss(output, target):
    return 0


KINDS = {
    "gpipe": (ts.ScheduleGPipe, 1),
    "1f1b": (ts.Schedule1F1B, 1),
    "interleaved": (ts.ScheduleInterleaved1F1B, 2),
    "interleaved-zb": (ts.ScheduleInterleavedZeroBubble, 1),
    "zb-v": (ts.ScheduleZBVZeroBubble, 2),
    "dualpipe-v": (ts.ScheduleDualPipeV, 2),
}


def order(kind, K, M, v):
    cls, _ = KINDS[kind]
    if issubclass(cls, ts.PipelineScheduleSingle):
        made = cls(Stage(0, K, K), M, loss_fn=loss)
        return made._get_pipeline_order()
    stages = [Stage(i * K, K * v, K) for i in range(v)]
    made = cls(stages, M, loss_fn=loss)
    return made.pipeline_order


def flat(action):
    """One cell: an overlapped pair of F and B stands one behind the other."""
    subs = getattr(action, "sub_actions", None)
    return [str(a) for a in subs] if subs else [str(action)]


def main():
    print(f"# torch {torch.__version__}, tests/reference/schedules.py")
    for kind, (_, v) in KINDS.items():
        vs = (2, 3) if kind == "interleaved" else (v,)
        for K, M in ((2, 4), (3, 6), (4, 8), (4, 12)):
            for chunks in vs:
                rows = order(kind, K, M, chunks)
                print(f"# {kind} {K} {M} {chunks}")
                for rank in sorted(rows):
                    cells = [c for a in rows[rank] if a is not None for c in flat(a)]
                    # torch 2.9.1 prints the last rank of 1F1B with forwards 1..M, which do not
                    # exist (it runs 0..M-1): a row that is no schedule is left out.
                    forwards = sorted(int(c.split("F")[1]) for c in cells if "F" in c)
                    print(",".join(cells) if forwards == sorted(list(range(M)) * chunks) else "-")


if __name__ == "__main__":
    sys.exit(main())
