"""torchrun torchtitan_run.py FLAGS: a step of a small decoder by torchtitan's own pipeline code, from the flags and the
op list that `elapse plan --for torchtitan` wrote, on CPU ranks. Its loss and gradients are the whole model's."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torchtitan.config.manager import ConfigManager
from torchtitan.distributed import pipeline_parallel as pp

LAYERS, HIDDEN, VOCAB, SEQ = 8, 32, 64, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 2 * HIDDEN), nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, x):
        mixed = x.cumsum(1) / torch.arange(1, x.shape[1] + 1).view(1, -1, 1)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(mixed))))


class Decoder(nn.Module):
    """Modules named as torchtitan's decoders, any of which may be None."""

    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleDict({str(i): Block() for i in range(LAYERS)})
        self.norm, self.lm_head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCAB)

    def forward(self, x):
        x = self.tok_embeddings(x) if self.tok_embeddings is not None else x
        for layer in self.layers.values():
            x = layer(x)
        x = self.norm(x) if self.norm is not None else x
        return self.lm_head(x) if self.lm_head is not None else x


def main():
    words = open(sys.argv[1]).read().split()
    config = ConfigManager().parse_args(["--module", "llama3", "--config", "llama3_debugmodel"] + words)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    whole = Decoder()
    batch = config.training.local_batch_size
    tokens = torch.randint(0, VOCAB, (batch, SEQ + 1))
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss_of(out, target):
        return torch.nn.functional.cross_entropy(out.flatten(0, 1), target.flatten(), reduction="sum") / (batch * SEQ)

    p = config.parallelism
    mesh = init_device_mesh("cpu", (p.pipeline_parallel_degree,), mesh_dim_names=("pp",))
    stages, parts = pp._pipeline_module_split(whole, mesh, p.pipeline_parallel_schedule, torch.device("cpu"),
                                              p.module_fqns_per_model_part)
    schedule = pp._build_pipeline_schedule(parallelism=p, local_batch_size=batch, stages=stages,
                                           loss_fn=lambda out, target: (loss_of(out, target), None))
    first, last = any(s.is_first for s in stages), any(s.is_last for s in stages)
    losses = [] if last else None
    schedule.step(*([x] if first else []), target=y if last else None, losses=losses, return_outputs=False)
    want = loss_of(whole(x), y)
    want.backward()
    ref = {n: w.grad for n, w in whole.named_parameters()}
    worst = max(((w.grad - ref[n]).abs().max() / ref[n].abs().max()).item()
                for part in parts for n, w in part.named_parameters())
    assert worst < 1e-4, worst
    if last:
        assert abs(sum(l.item() for l in losses) - want.item()) < 1e-4, (losses, want)
    print(f"rank {dist.get_rank()}: {sum(1 for part in parts for _ in part.named_parameters())} gradients equal, "
          f"worst {worst:.1e}")
    dist.barrier()
    dist.destroy_process_group()


main()
