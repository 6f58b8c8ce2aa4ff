"""Fine-tune a classifier of Hugging Face on SST-2, elastic or by plain DDP (docs/torch.md). It needs transformers.

    elapse-torch profile finetune.py --microbatches 4,8,16 --batch 16 -o job
    torchrun --nproc-per-node 2 finetune.py job/job.json --data DIR --set freeze.policy=safe
    torchrun --nproc-per-node 2 finetune.py job/job.json --data DIR --plain

DIR has train.tsv, dev.tsv (held out) and test.tsv with the columns sentence and label. The model begins at random and learns a
first task: the sentiment of other sentences, or with --first order whether words are in order. Then it gets a new head and the
second task, the sentiment of --samples sentences, which is what is timed."""
import argparse
import json
import time
import zlib

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

VOCAB, SEQ, BATCH, RATE = 4000, 24, 16, 3e-4


def make_model():
    import transformers
    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=64, num_hidden_layers=6, num_attention_heads=4, intermediate_size=256,
        max_position_embeddings=SEQ, hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=2))


def make_batch(samples):
    ids = torch.randint(1, VOCAB, (samples, SEQ))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, torch.randint(2, (samples,))


def encode(words):
    ids = [1] + [2 + zlib.crc32(w.lower().encode()) % (VOCAB - 2) for w in words][:SEQ - 1]
    ids = torch.tensor(ids + [0] * (SEQ - len(ids)))
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def read(path, count, task, seed, skip=0):
    """[(inputs, label)]: whether words are in order, or the sentiment. skip: sentences before them."""
    with open(path, encoding="utf-8") as f:
        rows = [line.rstrip("\n").rsplit("\t", 1) for line in f][1:]
    # The files are sorted by label.
    rows = [rows[i] for i in torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    rows = rows[skip:skip + count]
    draw, data = torch.Generator().manual_seed(seed), []
    for text, label in rows:
        words, label = text.split(), int(label)
        if task == "order":
            label = int(torch.randint(2, (1,), generator=draw))
            if label == 0:
                words = [words[i] for i in torch.randperm(len(words), generator=draw)]
        data.append((encode(words), torch.tensor(label)))
    return data


def loss_of(output, target):
    out = output if isinstance(output, torch.Tensor) else output["logits"]
    return torch.nn.functional.cross_entropy(out, target)


loss = loss_of


def accuracy(model, data):
    model.eval()
    right = 0
    with torch.no_grad():
        for inputs, target in DataLoader(data, batch_size=64):
            right += int((model(**inputs)["logits"].argmax(1) == target).sum())
    model.train()
    return right / len(data)


def plain(model, data, epochs, seed, rate):
    """Ordinary DDP."""
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    sampler = DistributedSampler(data, seed=seed, drop_last=True)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for inputs, target in DataLoader(data, batch_size=BATCH, sampler=sampler, drop_last=True):
            loss_of(ddp(**inputs), target).backward()
            optimizer.step()
            optimizer.zero_grad()


def elastic(model, data, held_out, args):
    import elapse_torch
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    with elapse_torch.Elastic(model, optimizer, DataLoader(data, shuffle=True), args.job, loss=loss_of, probe=held_out,
                              overrides=args.set + [f"train.epochs={args.epochs}",
                                                    f"train.seed={args.seed}"]) as run:
        for _ in range(run.epochs):
            for batch in run:
                run.step(batch)
        run.sync()
        return {"decisions": run.decisions, "transition_s": run.transition_ns / 1e9}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("job")
    p.add_argument("--data", required=True)
    p.add_argument("--plain", action="store_true", help="by DDP, without Elastic")
    p.add_argument("--epochs", type=int, default=20, help="of the second task")
    p.add_argument("--first-epochs", type=int, default=4, help="of the first task")
    p.add_argument("--samples", type=int, default=1024, help="of the second task")
    p.add_argument("--first", choices=("sentiment", "order"), default="sentiment", help="the first task")
    p.add_argument("--rate", type=float, default=RATE / 10, help="of the second task (default: a tenth of the first task's)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--set", action="append", default=[], metavar="a.b=v", help="override a value of the job")
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    model = make_model()
    plain(model, read(f"{args.data}/train.tsv", 10**9, args.first, args.seed, args.samples), args.first_epochs, args.seed, RATE)
    torch.nn.init.normal_(model.classifier.weight, std=.02)
    torch.nn.init.zeros_(model.classifier.bias)
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    train = read(f"{args.data}/train.tsv", args.samples, "sentiment", args.seed)
    held_out, test = (read(f"{args.data}/{part}.tsv", 10**9, "sentiment", args.seed) for part in ("dev", "test"))
    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    more = {} if args.plain else elastic(model, train, held_out, args)
    if args.plain:
        plain(model, train, args.epochs, args.seed, args.rate)
    told = torch.tensor([time.process_time() - cpu])
    dist.all_reduce(told)
    wall = time.perf_counter() - wall
    if dist.get_rank() == 0:
        print(json.dumps({"plain": args.plain, "seed": args.seed, "wall_s": round(wall, 2),
                          "cpu_s": round(told.item(), 2), "accuracy": accuracy(model, test), **more}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
