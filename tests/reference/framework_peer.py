"""What `elapse plan --for` wrote, judged: framework_peer.py names|parse FRAMEWORK FILE (FILE.json: the answer)."""
import json
import os
import re
import sys

what, framework, path = sys.argv[1:]
plan = json.load(open(path + ".json"))
text = open(path).read()
K, R, T = plan["pipeline_length"], plan["replicas"], plan.get("tensor", 1)


def names():
    known = set()
    for line in open(os.path.join(os.path.dirname(__file__), "framework_names.txt")):
        if line.startswith(framework + " "):
            known.update(line.split()[1:])
    used = re.findall(r"^--(\S+)", text, re.M) if framework == "megatron" else re.findall(r"^ *(\w+):", text, re.M)
    assert used and not set(used) - known, set(used) - known


def torchtitan():
    from torchtitan.config.manager import ConfigManager
    c = ConfigManager().parse_args(text.split())
    p = c.parallelism
    assert (p.pipeline_parallel_degree, p.tensor_parallel_degree) == (K, T), p
    assert p.data_parallel_shard_degree * p.data_parallel_replicate_degree == R, p
    assert c.training.global_batch_size == plan["batch"] * R, c.training
    assert (type(c.activation_checkpoint).__qualname__ == "FullAC.Config") == (plan["recompute"] == "layer")
    if K > 1:
        from torch.distributed.pipelining.schedules import get_schedule_class
        get_schedule_class(p.pipeline_parallel_schedule)
        assert len(p.module_fqns_per_model_part) == len(plan["cut"]), p
        assert sum(p.module_fqns_per_model_part, [])[1:-2] == [f"layers.{i}" for i in range(32)]
        assert os.path.isfile(p.pipeline_parallel_schedule_csv)


def automodel():
    import yaml
    from nemo_automodel.recipes._dist_utils import parse_distributed_section
    tree = yaml.safe_load(text)
    got = parse_distributed_section(tree["distributed"])
    assert (got["pp_size"], got["tp_size"], got["dp_size"]) == (K, T, R), got
    assert len(got["pipeline_config"].module_fqns_per_model_part) == len(plan["cut"]), got
    assert got["strategy_config"].reshard_after_forward == (plan["shard"] == "weights"), got
    assert tree["step_scheduler"]["local_batch_size"] == plan["batch"], tree


def megatron():
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    layout = re.search(r"--pipeline-model-parallel-layout (\S+)", text)
    if layout:
        got = PipelineParallelLayerLayout(layout[1], K)
        got.validate_layer_layout(32, None)
        assert got.virtual_pipeline_model_parallel_size * K == len(plan["cut"]), got


def deepspeed():
    from deepspeed.runtime import config

    class Ranks:  # what DeepSpeed asks a model-parallel unit for
        def get_data_parallel_world_size(self):
            return R
    config.dist.get_rank = lambda: 0
    c = config.DeepSpeedConfig(json.loads(text), mpu=Ranks())
    assert c.gradient_accumulation_steps == plan["microbatches"], c.gradient_accumulation_steps
    assert c.zero_optimization_stage == ["none", "optimizer", "gradients", "weights"].index(plan["shard"])


if what == "names":
    names()
else:
    globals()[framework]()
