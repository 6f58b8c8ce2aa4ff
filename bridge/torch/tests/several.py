"""Several commands of elapse_torch in one start of the ranks, whose imports take longer than they do: arguments of each,
divided by `--next`. Under torchrun. Exit 1 at the first that fails."""
import sys

import torch.distributed as dist

from elapse_torch.__main__ import main

init, leave = dist.init_process_group, dist.destroy_process_group
dist.init_process_group = lambda *args, **keys: None if dist.is_initialized() else init(*args, **keys)
dist.destroy_process_group = lambda: None
words = sys.argv[1:] + ["--next"]
while words:
    at = words.index("--next")
    if main(words[:at]) != 0:
        sys.exit(1)
    words = words[at + 1:]
leave()
