"""What a step under Elastic takes beside one of DDP (of one rank: a plain loop), in processor time of all ranks: epochs of one and the other in turn, of
examples/finetune.py's model and batches. Under torchrun; a JSON row on stdout.

    overhead.py JOB.json DATA [--set a.b=v]...    JOB.json, DATA: as for examples/finetune.py"""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

import elapse_torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))
import finetune

SAMPLES, PAIRS = 1024, 9


def main():
    p = argparse.ArgumentParser()
    p.add_argument("job")
    p.add_argument("data")
    p.add_argument("--set", action="append", default=[])
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    data = finetune.read(f"{args.data}/train.tsv", SAMPLES, "sentiment", 1)
    models = [finetune.make_model() for _ in range(2)]
    optimizers = [torch.optim.AdamW(m.parameters(), lr=finetune.RATE) for m in models]
    ddp = torch.nn.parallel.DistributedDataParallel(models[0]) if dist.get_world_size() > 1 else models[0]
    sampler = DistributedSampler(data, drop_last=True)
    run = elapse_torch.Elastic(models[1], optimizers[1], DataLoader(data, shuffle=True), args.job, loss=finetune.loss_of, overrides=[
        "freeze.policy=none", f"train.epochs={PAIRS + 1}"] + args.set)

    def plain_epoch():
        for inputs, target in DataLoader(data, batch_size=finetune.BATCH, sampler=sampler, drop_last=True):
            finetune.loss_of(ddp(**inputs), target).backward()
            optimizers[0].step()
            optimizers[0].zero_grad()

    def elastic_epoch():
        for batch in run:
            run.step(batch)

    def seconds(epoch):
        dist.barrier()
        begin = time.process_time()
        epoch()
        spent = torch.tensor([time.process_time() - begin])
        dist.all_reduce(spent)
        return spent.item()

    pairs = [(seconds(plain_epoch), seconds(elastic_epoch)) for _ in range(PAIRS + 1)][1:]
    ratios = sorted(b / a for a, b in pairs)
    if dist.get_rank() == 0:
        steps = SAMPLES // (finetune.BATCH * dist.get_world_size())
        print(json.dumps({"plain_ms_a_step": round(1e3 * sorted(a for a, _ in pairs)[PAIRS // 2] / steps, 2),
                          "overhead": round(ratios[PAIRS // 2] - 1, 4), "least": round(ratios[0] - 1, 4),
                          "most": round(ratios[-1] - 1, 4), "pairs": PAIRS, "steps_an_epoch": steps}))
    run.close()
    dist.destroy_process_group()


main()
