"""The cuts that other frameworks make of random lists, for tests/unit/partition/test_balance_frameworks.c.

Run: python3 tests/reference/balancers.py >tests/golden/framework_cuts.txt
It downloads pinned packages into a temporary folder and runs these functions of theirs, without the
rest of the packages: deepspeed partition_balanced, torchgpipe's blockpartition.solve, torchtitan's
_generate_llm_fqn_per_model_part, megatron-core's get_num_layers_to_build. Wants numpy, and python 3.11:
later ones add floats in sum() with less rounding, which moves some of torchgpipe's cuts.
"""
import ast
import glob
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import types
import zipfile

PINNED = ["deepspeed==0.19.8", "torchgpipe==0.0.7", "torchtitan==0.3.0", "megatron-core==0.19.2"]
LISTS = 2000


def fetch(folder):
    for package in PINNED:
        # The wheel of megatron-core is for python 3.12; deepspeed is a source archive.
        how = ["--only-binary=:all:", "--python-version=3.12", "--platform=manylinux_2_28_x86_64"]
        if package.startswith("deepspeed"):
            how = ["--no-binary=:all:", "--no-build-isolation"]
        subprocess.run([sys.executable, "-m", "pip", "-q", "download", "--no-deps", "-d", folder, *how, package], check=True)
    for name in glob.glob(folder + "/*.whl"):
        zipfile.ZipFile(name).extractall(folder)
    for name in glob.glob(folder + "/*.tar.gz"):
        tarfile.open(name).extractall(folder)


def functions(path, names, scope):
    """Run the definitions of these functions only."""
    tree = ast.parse(open(path).read())
    kept = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in kept:
        node.returns, node.decorator_list = None, []
        for arg in node.args.args + node.args.kwonlyargs:
            arg.annotation = None
    exec(compile(ast.Module(kept, []), path, "exec"), scope)
    return scope


def draw(seed):
    """The lists: the same generator stands in the C test."""
    state = seed * 2654435761 % 2**32

    def next_int(limit):
        nonlocal state
        state = (state * 1664525 + 1013904223) % 2**32
        return (state >> 8) % limit

    n = 1 + next_int(12)
    stages = 1 + next_int(6)
    widest = [3, 20, 1000, 1 << 20][next_int(4)]
    return [next_int(widest) for _ in range(n)], stages


def give_up(*_):
    raise TimeoutError


def cell(way, sizes, stages):
    """"-": refused. torchgpipe: "loops", its search never ends; "twice", its stages overlap."""
    signal.setitimer(signal.ITIMER_REAL, 5)
    try:
        counts = way(sizes, stages)
        return ",".join(map(str, counts)) if sum(counts) == len(sizes) else "twice"
    except TimeoutError:
        return "loops"
    except (ValueError, AssertionError):
        return "-"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    if len(sys.argv) < 2:
        fetch(folder)
    find = lambda pattern: glob.glob(os.path.join(folder, "**", pattern), recursive=True)[0]
    deepspeed = functions(find("deepspeed/runtime/utils.py"), ["partition_uniform", "partition_balanced"], {})
    gpipe = types.ModuleType("blockpartition")
    exec(open(find("torchgpipe/balance/blockpartition.py")).read(), gpipe.__dict__)
    titan = functions(find("torchtitan/distributed/pipeline_parallel.py"), ["_generate_llm_fqn_per_model_part"], {})
    megatron = functions(find("megatron/core/transformer/transformer_block.py"), ["get_num_layers_to_build"], {})

    class Config:
        pipeline_model_parallel_layout = None
        num_layers_in_first_pipeline_stage = num_layers_in_last_pipeline_stage = None
        account_for_embedding_in_pipeline_split = account_for_loss_in_pipeline_split = False
        virtual_pipeline_model_parallel_size = None

    def by_deepspeed(sizes, stages):
        parts = deepspeed["partition_balanced"](sizes, stages)
        return [parts[i + 1] - parts[i] for i in range(stages)]

    def by_titan(sizes, stages):
        """Its first and last entry are the embedding and the head."""
        if len(sizes) < 2:
            raise ValueError("no embedding and head")
        parts = titan["_generate_llm_fqn_per_model_part"](stages, len(sizes) - 2)
        return [len(p) - ("norm" in p) for p in parts]  # norm and lm_head are one

    def by_megatron(sizes, stages):
        config = Config()
        config.num_layers, config.pipeline_model_parallel_size = len(sizes), stages
        return [megatron["get_num_layers_to_build"](config, pp_rank=rank) for rank in range(stages)]

    ways = [by_deepspeed, lambda sizes, k: [len(p) for p in gpipe.solve(sizes, k)], by_titan, by_megatron]
    signal.signal(signal.SIGALRM, give_up)
    print("# " + ", ".join(PINNED) + "; tests/reference/balancers.py")
    for seed in range(1, LISTS + 1):
        sizes, stages = draw(seed)
        print(" ".join(cell(way, sizes, stages) for way in ways))


if __name__ == "__main__":
    main()
