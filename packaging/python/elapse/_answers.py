"""Answers as dataclasses, and how a notebook shows them."""
import csv
import dataclasses
import html
import io
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

PASS_COLOURS = {"F": "#3b82c4", "B": "#d98c2b", "I": "#d98c2b", "W": "#4fa36c", "R": "#8fa8d8", "Z": "#9aa4b1", "C": "#c3a6d8", "P": "#c3a6d8"}


def pick(kind: type, answer: Dict[str, Any], **more: Any) -> Any:
    """The members of a dataclass that an object of the program has."""
    names = {one.name for one in dataclasses.fields(kind)}
    return kind(**{**{key: value for key, value in answer.items() if key in names}, **more})


def format_ns(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns} ns"


def table(rows: List[Tuple[str, Any]]) -> str:
    cells = "".join(f"<tr><th style='text-align:left'>{html.escape(str(a))}</th><td style='text-align:left'>{html.escape(str(b))}</td></tr>" for a, b in rows)
    return f"<table>{cells}</table>"


@dataclass
class Plan:
    """How a job runs. K = pipeline_length, R = replicas, T = tensor, M = microbatches of a pipeline."""
    pipeline_length: int
    replicas: int
    tensor: int
    microbatches: int
    microbatch_size: int
    schedule: str
    chunks: int
    recompute: str
    shard: str
    frozen_layers: int
    cut: List[int]
    step_ns: int
    samples_per_s: float
    memory_bytes: List[int]
    lower_bound_ns: int
    cost_source: str
    tokens_per_s: Optional[float] = None
    mfu: Optional[float] = None
    stage_ns: List[int] = field(default_factory=list)
    data: Dict[str, Any] = field(default_factory=dict, repr=False)

    def _repr_html_(self) -> str:
        return table([("step", format_ns(self.step_ns)), ("samples/s", f"{self.samples_per_s:.4g}"),
                      ("layout", f"PP {self.pipeline_length} x DP {self.replicas} x TP {self.tensor}"),
                      ("micro-batches", f"{self.microbatches} of {self.microbatch_size}"), ("schedule", self.schedule),
                      ("recompute", self.recompute), ("shard", self.shard), ("cut", self.cut),
                      ("memory of a rank", f"{max(self.memory_bytes, default=0) / 2**30:.1f} GiB")])


@dataclass
class Device:
    """A device in a simulated step."""
    device: int
    replica: int
    rank: int
    busy_ns: int
    idle_ns: int
    first_ns: int
    last_ns: int
    peak_bytes: int
    peak_live: int


@dataclass
class Op:
    """An op of a simulated step. microbatch -1: it belongs to the whole batch."""
    op: str
    replica: int
    rank: int
    stage: int
    microbatch: int
    start_ns: int
    end_ns: int


def read_ops(text: str) -> List[Op]:
    return [Op(row["op"], int(row["replica"]), int(row["rank"]), int(row["stage"]), int(row["microbatch"] or -1),
               int(row["start_ns"]), int(row["end_ns"])) for row in csv.DictReader(io.StringIO(text))]


@dataclass
class Step:
    """A simulated step."""
    step_ns: int
    bubble_fraction: float
    samples_per_s: float
    allreduce_ns: int
    allreduce_exposed_ns: int
    events: int
    devices: List[Device] = field(repr=False)
    ops: List[Op] = field(default_factory=list, repr=False)
    data: Dict[str, Any] = field(default_factory=dict, repr=False)

    def _repr_svg_(self) -> str:
        """The passes of the first pipeline."""
        ops = [op for op in self.ops if op.replica == 0 and op.op in PASS_COLOURS]
        ranks = max((op.rank for op in ops), default=0) + 1
        width, left, row = 900, 56, 26
        scale = (width - left) / max(self.step_ns, 1)
        parts = [f'<text x="0" y="{k * row + 17}" font-size="12">rank {k}</text><rect x="{left}" y="{k * row + 3}" width="{width - left}" height="20" fill="#e4e8ee"/>'
                 for k in range(ranks)]
        for op in ops:
            x, w = left + op.start_ns * scale, max((op.end_ns - op.start_ns) * scale - .5, .4)
            number = f'<text x="{x + w / 2:.1f}" y="{op.rank * row + 17}" font-size="10" fill="#fff" text-anchor="middle">{op.microbatch}</text>' if w > 12 else ""
            parts.append(f'<g><title>{op.op} {op.microbatch}, {format_ns(op.end_ns - op.start_ns)}</title><rect x="{x:.1f}" y="{op.rank * row + 3}" '
                         f'width="{w:.1f}" height="20" fill="{PASS_COLOURS[op.op]}"/>{number}</g>')
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {ranks * row + 22}" width="{width}" font-family="sans-serif">{"".join(parts)}'
                f'<text x="{left}" y="{ranks * row + 16}" font-size="12">step {format_ns(self.step_ns)}, bubble {100 * self.bubble_fraction:.1f} %</text></svg>')


@dataclass
class Epoch:
    """An epoch of a simulated run; the plan is that at its end."""
    epoch: int
    frozen_layers: int
    pipeline_length: int
    replicas: int
    microbatches: int
    steps: int
    step_ns: int
    samples_per_s: float
    bubble_fraction: float
    transition_ns: int


@dataclass
class Run:
    """A simulated run."""
    total_ns: int
    device_hours: float
    epochs: List[Epoch] = field(repr=False)
    data: Dict[str, Any] = field(default_factory=dict, repr=False)

    def _repr_html_(self) -> str:
        names = ("epoch", "frozen_layers", "pipeline_length", "replicas", "microbatches", "samples_per_s")
        head = "".join(f"<th>{name}</th>" for name in names)
        rows = "".join("<tr>" + "".join(f"<td>{getattr(epoch, name):.6g}</td>" for name in names) + "</tr>" for epoch in self.epochs)
        return f"<p>{format_ns(self.total_ns)}</p><table><tr>{head}</tr>{rows}</table>"


@dataclass
class Schedule:
    """Op lists: ranks[k] is rank k's, each op {"op", "stage", "microbatch"}."""
    kind: str
    num_ranks: int
    num_stages: int
    num_microbatches: int
    ranks: List[List[Dict[str, Any]]] = field(repr=False)
    peak_live: List[int] = field(default_factory=list)
    data: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Freezing:
    """frozen[e]: the number of first layers that are frozen in epoch e."""
    layers: int
    policy: str
    frozen: List[int]
    reasons: List[str] = field(default_factory=list, repr=False)
    data: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Calibration:
    """Factors between computed and measured steps, kept in the profile store under a name."""
    name: str
    factors: Any
    data: Dict[str, Any] = field(default_factory=dict, repr=False)
