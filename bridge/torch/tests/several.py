"""Several commands of elapse_torch in one start of the ranks, whose imports take longer than they do: arguments of each,
divided by `--next`. Under torchrun. Exit 1 at the first that fails; with --go-on in front all run, and a line has the exit
status and the error of each."""
import contextlib
import io
import sys

import torch.distributed as dist

from elapse_torch.__main__ import main

init, leave = dist.init_process_group, dist.destroy_process_group
dist.init_process_group = lambda *args, **keys: None if dist.is_initialized() else init(*args, **keys)
dist.destroy_process_group = lambda: None
go_on = sys.argv[1] == "--go-on"
words = sys.argv[2 if go_on else 1:] + ["--next"]
while words:
    at = words.index("--next")
    error = io.StringIO()
    with contextlib.redirect_stderr(error) if go_on else contextlib.nullcontext():
        code = main(words[:at])
    if go_on:
        own = [line for line in error.getvalue().splitlines() if line.startswith("elapse-torch: ")]
        print(f"{code}: {' '.join(own)}", flush=True)  # torch.export says more
    elif code:
        sys.exit(1)
    words = words[at + 1:]
leave()
