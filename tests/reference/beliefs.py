#!/usr/bin/env python3
"""What was believed about Python libraries beside what they do: the rows of docs/compatibility-python.md, run again.

    python3 -m venv V && V/bin/pip install torch==2.15.0 torchvision==0.29.2 transformers==5.24.0 peft==0.21.2
    V/bin/python tests/reference/beliefs.py [FOLDER]

FOLDER has the unpacked packages of balancers.py; without it they are downloaded. Prints a row of the table for each
belief that was run, "CHANGED" for one that no longer holds, and ends with 1 if there is one.
"""
import ast
import functools
import inspect
import json
import logging
import math
import os
import sys
import tempfile
import types
import warnings

warnings.filterwarnings("ignore")
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", GLOO_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1")
logging.disable(logging.CRITICAL)

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

ROWS = []


def row(package, believed, right, holds):
    """The row of a function that is true while `holds` does. right: what was believed was so."""
    def keep(run):
        ROWS.append((package, believed, right, holds, run))
        return run
    return keep


def refuses(run):
    try:
        run()
    except (ValueError, RuntimeError, TypeError, AssertionError, NotImplementedError):
        return True
    return False


# --- torch.distributed.pipelining ----------------------------------------------------------------
from torch.distributed.pipelining import schedules as ts
from torch.distributed.pipelining.microbatch import split_args_kwargs_into_chunks
from torch.distributed.pipelining.stage import _PipelineStageBase


class Stage(_PipelineStageBase):
    """What the schedule classes look at; nothing is ever run."""
    is_first = is_last = property(lambda self: False)

    def __init__(self, index, num_stages, ranks):
        self.stage_index, self.num_stages, self.group_size, self.group_rank = index, num_stages, ranks, index % ranks
        self.stage_index_to_group_rank = {i: i % ranks for i in range(num_stages)}
        self.group, self.has_backward, self.device, self.submod = None, True, torch.device("cpu"), None

    def _create_grad_recv_info(self, *args): raise NotImplementedError
    def _prepare_forward_infra(self, *args): raise NotImplementedError
    def _prepare_backward_infra(self, *args): raise NotImplementedError


def single(kind, ranks, count, rank=0):
    return kind(Stage(rank, ranks, ranks), count, loss_fn=lambda *_: 0)


def multi(kind, ranks, count, chunks=2):
    return kind([Stage(i * ranks, ranks * chunks, ranks) for i in range(chunks)], count, loss_fn=lambda *_: 0)


def ops(cells):
    return [str(cell) for cell in cells if cell is not None and str(cell)[-1].isdigit()]


def live(schedule):
    most = now = 0
    for cell in ops(schedule.pipeline_order[0]):
        now += ("F" in cell) - ("B" in cell)
        most = max(most, now)
    return most


@row("torch 2.15.0", "a batch of 10 in 4 micro-batches is 3 3 3 1, as torch.chunk() has it", False, "3 3 2 2 (tensor_split); torch.chunk() gives 3 3 3 1, and 6 in 4 is three pieces there")
def _():
    pieces, _ = split_args_kwargs_into_chunks((torch.arange(10),), None, 4)
    return [len(p[0]) for p in pieces] == [3, 3, 2, 2] and [len(p) for p in torch.arange(10).chunk(4)] == [3, 3, 3, 1]


@row("torch 2.15.0", "GPipe wants as many micro-batches as stages, as 1F1B does", False, "1F1B refuses 2 on 4 stages, GPipe takes them")
def _():
    return refuses(lambda: single(ts.Schedule1F1B, 4, 2)) and len(ops(single(ts.ScheduleGPipe, 4, 2)._get_pipeline_order()[0])) == 4


@row("torch 2.15.0", "the op list of 1F1B counts micro-batches from 0 on each rank", False, "the last rank's forwards are written 1..M and run as 0..M-1")
def _():
    return ops(single(ts.Schedule1F1B, 2, 3)._get_pipeline_order()[1]) == "1F1 1B0 1F2 1B1 1F3 1B2".split()


@row("torch 2.15.0", "LoopedBFS runs backwards in the order of the forwards", False, "from the last micro-batch to the first")
def _():
    return ops(multi(ts.ScheduleLoopedBFS, 2, 3).pipeline_order[1]) == "1F0 1F1 1F2 3F0 3F1 3F2 3B2 3B1 3B0 1B2 1B1 1B0".split()


@row("torch 2.15.0", "interleaved 1F1B holds less with 7 micro-batches than with 8 (4 ranks, 2 stages each)", False, "14 against 11: 7 are one round, so all forwards come first")
def _():
    return [live(multi(ts.ScheduleInterleaved1F1B, 4, count)) for count in (6, 7, 8)] == [12, 14, 11]


@row("torch 2.15.0", "interleaved 1F1B wants a multiple of the number of ranks", False, "a multiple of max(1, M / ranks): 6 and 7 on 4 ranks are taken, 9 is refused")
def _():
    return refuses(lambda: multi(ts.ScheduleInterleaved1F1B, 4, 9)) and bool(multi(ts.ScheduleInterleaved1F1B, 4, 7))


@row("torch 2.15.0", "get_schedule_class() wants the class's spelling", False, "any case: `1f1b`, `LOOPEDBFS`; other names are refused with a list")
def _():
    return ts.get_schedule_class("LOOPEDBFS") is ts.ScheduleLoopedBFS and refuses(lambda: ts.get_schedule_class("zb-v"))


@row("torch 2.15.0", "ZBVZeroBubble has exactly two stages a rank", True, "three are refused")
def _():
    return refuses(lambda: multi(ts.ScheduleZBVZeroBubble, 2, 4, 3))


@row("torch 2.15.0", "ZBVZeroBubble and DualPipeV both want 2 x ranks micro-batches", False, "DualPipeV does; ZBVZeroBubble takes 2 on 4 ranks")
def _():
    return refuses(lambda: multi(ts.ScheduleDualPipeV, 4, 6)) and len(ops(multi(ts.ScheduleZBVZeroBubble, 4, 2).pipeline_order[0])) == 12


@row("torch 2.15.0", "stages of a V lie on ranks 0..K-1, K-1..0", True, "generate_stage_to_rank_mapping(4, 8, 'v')")
def _():
    return list(ts.generate_stage_to_rank_mapping(4, 8, "v").values()) == [0, 1, 2, 3, 3, 2, 1, 0]


@row("torch 2.15.0", "_dump_csv() writes computing ops", False, "by default with the ops of communication and FSDP (`0SEND_F0`, `0UNSHARD`); `compute_only` is an option")
def _():
    path = os.path.join(tempfile.mkdtemp(), "ops.csv")
    multi(ts.ScheduleLoopedBFS, 2, 3)._dump_csv(path)
    return open(path).read().startswith("0UNSHARD,2UNSHARD,0F0,0SEND_F0,2RECV_F0,")


@row("torch 2.15.0", "a schedule leaves the division by the number of micro-batches to the loss", False, "scale_grads is on: it divides gradients by M, a mean of means")
def _():
    return inspect.signature(ts.Schedule1F1B).parameters["scale_grads"].default is True


# --- ranks: gloo, DDP, FSDP2 ---------------------------------------------------------------------
@functools.lru_cache(None)
def ranks(run, count):
    """What rank 0 of `count` gloo processes returns from run(rank, count)."""
    import torch.multiprocessing as mp
    answers = mp.get_context("spawn").SimpleQueue()
    os.environ["MASTER_PORT"] = str(20000 + os.getpid() % 20000)
    mp.spawn(one_rank, (run.__name__, count, answers), count)
    return answers.get()


def one_rank(rank, name, count, answers):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=count)
    found = globals()[name](rank, count)
    if rank == 0:
        answers.put(found)
    dist.barrier()
    dist.destroy_process_group()


def sums(rank, count):
    x = torch.randn(4096, generator=torch.Generator().manual_seed(rank))
    terms = [torch.empty(4096) for _ in range(count)]
    dist.all_gather(terms, x)
    ascending = sum(terms[1:], terms[0].clone())
    whole, part, mean = x.clone(), x[:64].clone(), torch.tensor([rank + 1.0])
    dist.all_reduce(whole)
    dist.all_reduce(part)
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    everywhere = [torch.empty(4096) for _ in range(count)]
    dist.all_gather(everywhere, whole)
    return (bool(torch.equal(whole, ascending)), bool(torch.equal(part, whole[:64])), mean.item(),
            all(torch.equal(everywhere[0], e) for e in everywhere))


@row("torch 2.15.0, gloo", "an all-reduce adds ranks in ascending order", False, "with 2 ranks any order is one; with 3, a fifth of the sums of floats differ from it")
def _():
    return ranks(sums, 2)[0] and not ranks(sums, 3)[0]


@row("torch 2.15.0, gloo", "a number's sum does not depend on the tensor that it lies in", False, "from 3 ranks on it does, so buckets change the bits of gradients")
def _():
    return ranks(sums, 2)[1] and not ranks(sums, 3)[1]


@row("torch 2.15.0, gloo", "an all-reduce gives all ranks equal bits", True, "equal on 2, 3 and 4 ranks")
def _():
    return all(ranks(sums, count)[3] for count in (2, 3, 4))


@row("torch 2.15.0, gloo", "gloo has no AVG", False, "it has: the mean of 1, 2, 3 is 2")
def _():
    return ranks(sums, 3)[2] == 2.0


def buckets(rank, count, **options):
    made, seen = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(12)]), []

    def hook(_, bucket):
        seen.append(round(bucket.buffer().numel() / 2**18))
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])

    model = nn.parallel.DistributedDataParallel(made, **options)
    model.register_comm_hook(None, hook)
    steps = []
    for _ in range(3):
        seen.clear()
        model(torch.randn(2, 1024)).sum().backward()
        steps.append(list(seen))
    return steps


def buckets_unused(rank, count):
    return buckets(rank, count, find_unused_parameters=True)


def buckets_static(rank, count):
    return buckets(rank, count, static_graph=True)


@row("torch 2.15.0, DDP", "every step has the buckets of bucket_cap_mb", False, "the first step has one bucket of all gradients, so nothing overlaps; later ones 4, 28, 16 MiB of 48: a bucket closes after its cap of 25")
def _():
    return ranks(buckets, 2) == [[48], [4, 28, 16], [4, 28, 16]]


@row("torch 2.15.0, DDP", "static_graph=True has its buckets from the second step", False, "from the third: two steps have one bucket")
def _():
    return ranks(buckets_static, 2) == [[48], [48], [4, 28, 16]]


@row("torch 2.15.0, DDP", "find_unused_parameters=True keeps the small bucket in front", False, "it comes last, in every step, because buckets are not rebuilt by arrival")
def _():
    return ranks(buckets_unused, 2) == [[16, 28, 4]] * 3


def gathers(rank, count, **options):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.utils._python_dispatch import TorchDispatchMode
    mesh, seen = init_device_mesh("cpu", (count,)), {"gather": 0, "scatter": 0}

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen["gather"] += "allgather_base" in str(func)
            seen["scatter"] += "reduce_scatter_base" in str(func)
            return func(*args, **(kwargs or {}))

    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    for part in [*model, model]:
        fully_shard(part, mesh=mesh, **options)
    for micro_batch in range(3):
        model.set_requires_gradient_sync(micro_batch == 2)
        with Watch():
            model(torch.randn(2, 64)).sum().backward()
    return seen["gather"], seen["scatter"]


def gathers_kept(rank, count):
    return gathers(rank, count, reshard_after_forward=False)


@row("torch 2.15.0, FSDP2", "set_requires_gradient_sync(False) saves most messages of accumulation", False, "only reduce-scatters: 4 layers, 3 micro-batches: 4 of them, and 24 all-gathers")
def _():
    return ranks(gathers, 2) == (24, 4)


@row("torch 2.15.0, FSDP2", "reshard_after_forward=False gathers once a step", False, "once a micro-batch: weights are dropped after each backward")
def _():
    return ranks(gathers_kept, 2) == (12, 4)


def shards(rank, count):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    rows = []
    for size in 10, 2:
        layer = nn.Linear(3, size)
        fully_shard(layer, mesh=init_device_mesh("cpu", (count,)))
        local, every = torch.tensor([layer.weight.to_local().shape[0]]), [torch.empty(1, dtype=torch.int64) for _ in range(count)]
        dist.all_gather(every, local)
        rows.append([int(e) for e in every])
    return rows


@row("torch 2.15.0, FSDP2", "10 rows on 4 ranks are 3 3 2 2", False, "3 3 3 1, and 2 rows are 1 1 0 0: torch.chunk()'s rule, other than that of micro-batches")
def _():
    return ranks(shards, 4) == [[3, 3, 3, 1], [1, 1, 0, 0]]


# --- losses, optimizers, layers ------------------------------------------------------------------
def rates(make, steps, lr=1.0):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler, seen = make(optimizer), []
    for _ in range(steps):
        seen.append(round(optimizer.param_groups[0]["lr"], 3))
        optimizer.step()
        scheduler.step()
    return seen


@row("torch 2.15.0", "cross_entropy over labels that are all ignored is 0", False, "NaN (0 / 0)")
def _():
    return math.isnan(F.cross_entropy(torch.randn(2, 3), torch.tensor([-100, -100])))


@row("torch 2.15.0", "cross_entropy with class weights divides by the number of samples", False, "by the sum of their weights")
def _():
    x, y, w = torch.tensor([[0.0, 1.0], [2.0, 0.0]]), torch.tensor([0, 1]), torch.tensor([1.0, 3.0])
    each = F.cross_entropy(x, y, reduction="none") * w
    return torch.allclose(F.cross_entropy(x, y, weight=w), each.sum() / w.sum())


@row("torch 2.15.0", "AdamW keeps two fp32 numbers for each weight", False, "in the weight's own type: bf16 weights have bf16 moments; and a scalar fp32 `step` for each tensor")
def _():
    p = nn.Parameter(torch.randn(5).bfloat16())
    p.grad = torch.ones_like(p)
    o = torch.optim.AdamW([p])
    o.step()
    return [str(v.dtype) for v in o.state[p].values()] == ["torch.float32", "torch.bfloat16", "torch.bfloat16"]


@row("torch 2.15.0", "AdamW fused=True has the bits of the plain one on a CPU", False, "not after 5 steps; foreach=True has them")
def _():
    made = []
    for options in {}, {"foreach": True}, {"fused": True}:
        torch.manual_seed(0)
        p = nn.Parameter(torch.randn(1000))
        o = torch.optim.AdamW([p], **options)
        for i in range(5):
            p.grad = torch.randn(1000, generator=torch.Generator().manual_seed(i))
            o.step()
        made.append(p.detach())
    return torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])


@row("torch 2.15.0", "SGD's dampening counts from the first step", False, "from the second: the first sets the momentum to the gradient")
def _():
    p = nn.Parameter(torch.zeros(1))
    o = torch.optim.SGD([p], lr=1, momentum=0.9, dampening=0.5)
    p.grad = torch.ones(1)
    o.step()
    return p.item() == -1.0


@row("torch 2.15.0", "clip_grad_norm_() leaves a gradient whose norm is just the limit", False, "it divides by norm + 1e-6: 1 becomes 0.999999")
def _():
    p = nn.Parameter(torch.zeros(1))
    p.grad = torch.ones(1)
    nn.utils.clip_grad_norm_([p], 1.0)
    return 0.9999985 < p.grad.item() < 1


@row("torch 2.15.0", "CosineAnnealingLR stays at 0 after T_max", False, "it rises again: after 4 steps 0, after 8 the first rate")
def _():
    return rates(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 4), 9)[4::4] == [0.0, 1.0]


@row("torch 2.15.0", "Muon takes a model's parameters", False, "only matrices; a bias or a norm is refused")
def _():
    return refuses(lambda: torch.optim.Muon([nn.Parameter(torch.zeros(3))]))


@row("torch 2.15.0", "a row's product does not depend on the rows beside it", False, "512 x 512: rows alone and 16 together differ in most bits' last places (CPU)")
def _():
    torch.manual_seed(0)
    layer, x = nn.Linear(512, 512), torch.randn(16, 512)
    return not torch.equal(layer(x), torch.cat([layer(x[i:i + 1]) for i in range(16)]))


@row("torch 2.15.0", "randn(64) is eight times randn(8) of that seed", False, "other numbers: 16 and more are drawn by another loop (CPU)")
def _():
    torch.manual_seed(0)
    whole = torch.randn(64)
    torch.manual_seed(0)
    return not torch.equal(whole, torch.cat([torch.randn(8) for _ in range(8)]))


@row("torch 2.15.0", "dropout of a batch in pieces draws what the whole one draws", True, "equal for 8 x 400 in four pieces (CPU)")
def _():
    torch.manual_seed(0)
    whole = F.dropout(torch.ones(8, 400))
    torch.manual_seed(0)
    return torch.equal(whole, torch.cat([F.dropout(torch.ones(2, 400)) for _ in range(4)]))


@row("torch 2.15.0", "DistributedSampler leaves out what does not divide", False, "it repeats the first samples; drop_last=True leaves out. Without set_epoch() each epoch has one order")
def _():
    from torch.utils.data import DistributedSampler
    sampler = DistributedSampler(list(range(10)), 4, 2)
    return list(DistributedSampler(list(range(10)), 4, 2, shuffle=False)) == [2, 6, 0] and list(sampler) == list(sampler)


@row("torch 2.15.0", "BatchNorm trains on one sample", False, "refused: more than one value a channel")
def _():
    return refuses(lambda: nn.BatchNorm1d(3)(torch.randn(1, 3)))


@row("torch 2.15.0", "FlopCounterMode halves causal attention", False, "it counts the whole square, and 2.5 times it in the backward of the fused operator")
def _():
    from torch.utils.flop_counter import FlopCounterMode
    q = torch.randn(1, 4, 64, 16, requires_grad=True)
    counts = []
    with FlopCounterMode(display=False) as c:
        out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    counts.append(c.get_total_flops())
    with FlopCounterMode(display=False) as c:
        out.sum().backward()
    return [*counts, c.get_total_flops()] == [1048576, 2621440]


@row("torch 2.15.0", "a profiler's trace counts microseconds from the epoch", False, "from `baseTimeNanoseconds`, a date; `displayTimeUnit` says ms, `ts` and `dur` are microseconds")
def _():
    import time
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU]) as p:
        torch.randn(8) + 1
    path = os.path.join(tempfile.mkdtemp(), "trace.json")
    p.export_chrome_trace(path)
    trace = json.load(open(path))
    ts_us = next(e["ts"] for e in trace["traceEvents"] if e["ph"] == "X")
    return trace["displayTimeUnit"] == "ms" and abs(trace["baseTimeNanoseconds"] / 1e9 + ts_us / 1e6 - time.time()) < 600


# --- safetensors, transformers, peft -------------------------------------------------------------
import transformers
from safetensors.torch import load_file, save


def header(data):
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + size]), size


@row("safetensors 0.8.0", "a tied table is saved once or twice", False, "refused: tensors share memory. Two halves of one buffer are saved")
def _():
    w = torch.zeros(8)
    return refuses(lambda: save({"a": w, "b": w})) and len(save({"a": w[:4], "b": w[4:]})) > 0


@row("safetensors 0.8.0", "tensors lie in the order given", False, "by width of their type, then name, so that each is aligned; the header is padded with blanks to 8")
def _():
    names, size = header(save({"b": torch.zeros(1, dtype=torch.uint8), "a": torch.zeros(3), "c": torch.zeros(1, dtype=torch.float64)}))
    return list(names) == ["c", "a", "b"] and size % 8 == 0


@row("safetensors 0.8.0", "a transposed view is saved as it reads", False, "refused: not contiguous")
def _():
    return refuses(lambda: save({"a": torch.zeros(2, 3).t()}))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=10, bos_token_id=None, eos_token_id=None))


def saved(model):
    folder = tempfile.mkdtemp()
    model.save_pretrained(folder)
    return load_file(folder + "/model.safetensors"), json.load(open(folder + "/config.json"))


@row("transformers 5.24.0", "GPT-2's file has lm_head.weight", False, "it has not (tied), and products are stored [in, out]")
def _():
    tensors, _ = saved(gpt2())
    return "lm_head.weight" not in tensors and tensors["transformer.h.0.attn.c_attn.weight"].shape == (8, 24)


@row("transformers 5.24.0", "config.json of a Llama has rope_theta and torch_dtype", False, "`rope_parameters.rope_theta` and `dtype` since 5")
def _():
    config = saved(transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=2, intermediate_size=8, vocab_size=10)))[1]
    return "rope_theta" not in config and config["rope_parameters"]["rope_theta"] == 10000.0 and config["dtype"] == "float32"


@row("transformers 5.24.0", "Mixtral's experts in memory are named as in its file", False, "one tensor of all experts in memory (mlp.experts.gate_up_proj), w1, w2, w3 of each in the file")
def _():
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(num_hidden_layers=1, hidden_size=8, intermediate_size=16, num_attention_heads=2, num_key_value_heads=1, num_local_experts=2, vocab_size=10))
    return "model.layers.0.mlp.experts.gate_up_proj" in model.state_dict() and "model.layers.0.block_sparse_moe.experts.1.w2.weight" in saved(model)[0]


@row("transformers 5.24.0", "Mixtral trains with its router's auxiliary loss", False, "off unless output_router_logits is set")
def _():
    return transformers.MixtralConfig().output_router_logits is False


@row("transformers 5.24.0", "each layer of T5 has a table of relative positions", False, "only the first of the encoder and of the decoder; later layers take it from there")
def _():
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=2, num_heads=2, vocab_size=10))
    return sum("relative" in name for name, _ in model.named_parameters()) == 2


@row("transformers 5.24.0", "warm-up begins above 0", False, "the first step has rate 0, so it changes nothing")
def _():
    return rates(lambda o: transformers.get_linear_schedule_with_warmup(o, 4, 10), 5) == [0.0, 0.25, 0.5, 0.75, 1.0]


@row("transformers 5.24.0", "its cosine ends at 0 and stays", False, "it rises again after num_training_steps; the linear one stays at 0")
def _():
    return rates(lambda o: transformers.get_cosine_schedule_with_warmup(o, 0, 4), 6)[4:] == [0.0, 0.146]


@row("transformers 5.24.0", "Trainer decays all weights that are no bias", False, "neither biases nor norms")
def _():
    names = transformers.Trainer.get_decay_parameter_names(types.SimpleNamespace(), gpt2())
    return "transformer.h.0.ln_1.weight" not in names and "transformer.h.0.attn.c_attn.weight" in names


@row("transformers 5.24.0", "the optimizer of TrainingArguments is AdamW with weight decay", False, "adamw_torch_fused with a decay of 0, gradients clipped at 1")
def _():
    fields = transformers.TrainingArguments.__dataclass_fields__
    return [fields[k].default for k in ("optim", "weight_decay", "max_grad_norm")] == ["adamw_torch_fused", 0.0, 1.0]


@row("transformers 5.24.0", "apply_chat_template() returns a list of ids", False, "a BatchEncoding with input_ids and attention_mask since 5")
def _():
    from tokenizers import Tokenizer, models, pre_tokenizers
    made = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return type(fast.apply_chat_template([{"role": "user", "content": "a a"}])).__name__ == "BatchEncoding"


@row("transformers 5.24.0", "gelu is one function", False, "`gelu` is exact (BERT, ViT), `gelu_new` the tanh form (GPT-2), `quick_gelu` a sigmoid")
def _():
    from transformers.activations import ACT2FN
    return len({ACT2FN[name](torch.tensor(1.5)).item() for name in ("gelu", "gelu_new", "quick_gelu")}) == 3


@row("peft 0.21.2", "LoRA divides by the rank: alpha / r", True, "8 / 8 by default; B begins at 0, dropout is 0")
def _():
    import peft
    model = peft.get_peft_model(gpt2(), peft.LoraConfig(task_type="CAUSAL_LM"))
    return (model.base_model.model.transformer.h[0].attn.c_attn.scaling["default"] == 1.0
            and all(not p.any() for n, p in model.named_parameters() if "lora_B" in n))


@row("peft 0.21.2", "use_rslora changes how it trains, not what a file means", False, "alpha / sqrt(r): r 4, alpha 8 scale by 4 in place of 2, when loaded too")
def _():
    import peft
    model = peft.get_peft_model(gpt2(), peft.LoraConfig(task_type="CAUSAL_LM", use_rslora=True, r=4, lora_alpha=8))
    return model.base_model.model.transformer.h[0].attn.c_attn.scaling["default"] == 4.0


@row("peft 0.21.2", "an adapter file has LoRA's factors only", False, "with task_type SEQ_CLS the head's weights too (modules_to_save)")
def _():
    import peft
    bert = transformers.BertForSequenceClassification(transformers.BertConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=2, intermediate_size=8, vocab_size=10))
    folder = tempfile.mkdtemp()
    peft.get_peft_model(bert, peft.LoraConfig(task_type="SEQ_CLS")).save_pretrained(folder)
    return "base_model.model.classifier.weight" in load_file(folder + "/adapter_model.safetensors")


@row("torchvision 0.29.2", "resize() halves a picture as interpolate() does", False, "it smooths first (antialias), as Pillow does")
def _():
    import torchvision.transforms.v2.functional as V
    x = torch.rand(1, 8, 8)
    return not torch.allclose(V.resize(x, [4, 4]), F.interpolate(x[None], size=(4, 4), mode="bilinear")[0])


@row("tokenizers 0.23.3", "NFKC has the tables of today's Unicode", False, "older ones: U+32FF (2019) stays, where Python gives two ideographs")
def _():
    import unicodedata
    from tokenizers import normalizers
    return normalizers.NFKC().normalize_str("\u32ff") == "\u32ff" != unicodedata.normalize("NFKC", "\u32ff")


@row("tokenizers 0.23.3", "Lowercase is Python's lower()", False, "a final capital sigma becomes the medial letter; lower() writes the final one")
def _():
    from tokenizers import normalizers
    return normalizers.Lowercase().normalize_str("\u039f\u03a3") == "\u03bf\u03c3" != "\u039f\u03a3".lower()


@row("Pillow 13.0.0", "convert() of 16-bit grey keeps the upper 8 bits", False, "it clips: 256 and 65535 both become 255")
def _():
    import numpy
    from PIL import Image
    return list(numpy.array(Image.fromarray(numpy.array([[0, 255, 256, 65535]], dtype=numpy.uint16)).convert("L"))[0]) == [0, 255, 255, 255]


@row("Pillow 13.0.0", "convert(\"RGB\") blends a transparent pixel with black or white", False, "its hidden colour comes out")
def _():
    from PIL import Image
    return Image.new("RGBA", (1, 1), (200, 100, 50, 0)).convert("RGB").getpixel((0, 0)) == (200, 100, 50)


# --- trainers, whose functions run without the rest of them --------------------------------------
def theirs(pattern, names, **scope):
    """Run the definitions of these names of a file in FOLDER."""
    import glob
    path = glob.glob(os.path.join(FOLDER, "**", pattern), recursive=True)[0]
    kept = [node for node in ast.parse(open(path).read()).body if getattr(node, "name", None) in names]
    for node in [n for k in kept for n in ast.walk(k) if isinstance(n, ast.FunctionDef)]:
        node.returns = None
        for arg in node.args.args + node.args.kwonlyargs:
            arg.annotation = None
    exec(compile(ast.Module(kept, []), path, "exec"), scope)
    return [scope[name] for name in names]


@row("torchtitan 0.3.0", "32 layers on 4 stages are 8 each", False, "8, 9, 8, 7: the embedding, and norm and head, count as a layer each")
def _():
    parts = theirs("torchtitan/distributed/pipeline_parallel.py", ["_generate_llm_fqn_per_model_part"])[0](4, 32)
    return [sum(name.startswith("layers") for name in part) for part in parts] == [8, 9, 8, 7]


@row("megatron-core 0.19.2", "ranks count tensor, then data, then pipeline", True, "tp-cp-ep-dp-pp: with 2 of each, stages are 0 and 4, replicas 0 and 2")
def _():
    generator, _ = theirs("megatron/core/parallel_state.py", ["RankGenerator", "generate_masked_orthogonal_rank_groups"])
    made = generator(tp=2, ep=1, dp=2, pp=2, cp=1, order="tp-cp-ep-dp-pp")
    return made.get_ranks("dp")[0] == [0, 2] and made.get_ranks("pp")[0] == [0, 4]


@row("megatron-core 0.19.2", "the interleaved table deals 7 micro-batches as 4 and 3", True, "the last round is short; PyTorch makes one round of 7")
def _():
    return theirs("megatron/core/pipeline_parallel/schedules.py", ["get_schedule_table"])[0](7, 2, 4)[8:] == [(4, 0), (5, 0), (6, 0), (4, 1), (5, 1), (6, 1)]


def deepspeed_schedule():
    import glob
    made = types.ModuleType("schedule")
    path = glob.glob(os.path.join(FOLDER, "**", "deepspeed/runtime/pipe/schedule.py"), recursive=True)[0]
    exec(open(path).read().replace("from ..utils import call_to_str", "call_to_str = str"), made.__dict__)
    return made


@row("deepspeed 0.19.8", "its pipeline runs 1F1B", True, "stage 0 of 4: FFFFBFBFBFBFBBBB")
def _():
    made = deepspeed_schedule()
    names = [type(c).__name__ for step in made.TrainSchedule(8, 4, 0) for c in step]
    return "".join(n[0] for n in names if n in ("ForwardPass", "BackwardPass")) == "FFFFBFBFBFBFBBBB"


@row("deepspeed 0.19.8", "its last stage has one buffer", False, "two, as every stage has at least")
def _():
    return [deepspeed_schedule().TrainSchedule(8, 4, stage).num_pipe_buffers() for stage in range(4)] == [4, 3, 2, 2]


@row("deepspeed 0.19.8", "WarmupLR warms up on a line", False, "by a logarithm unless warmup_type is linear")
def _():
    import glob
    path = glob.glob(os.path.join(FOLDER, "**", "deepspeed/runtime/lr_schedules.py"), recursive=True)[0]
    made = next(n for n in ast.parse(open(path).read()).body if getattr(n, "name", None) == "WarmupLR")
    start = next(n for n in made.body if getattr(n, "name", None) == "__init__")
    return [ast.unparse(d) for d in start.args.defaults][-2] == "WARMUP_LOG_RATE"


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import balancers
    FOLDER = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    if len(sys.argv) < 2:
        balancers.fetch(FOLDER)
    changed = 0
    for package, believed, right, holds, run in ROWS:
        try:
            held = run()
        except Exception as failure:
            held, holds = False, f"{type(failure).__name__}: {failure}"[:200]
        changed += not held
        print(f"| {package} | {believed} | {'yes' if right else '**no**'} | {holds if held else 'CHANGED: ' + holds} |", flush=True)
    print(f"{len(ROWS)} rows, {sum(not r[2] for r in ROWS)} surprises, {changed} changed", file=sys.stderr)
    sys.exit(changed > 0)
