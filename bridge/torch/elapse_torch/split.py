"""Stages whose backward may be split into an input's and a weights' half.

PyTorch starts the weights' half at the operators where a weight meets values that depend on the stage's inputs. Where
one weight meets them at several operators (a table of relative positions, a layer that is applied again) or reaches an
output by itself, that half fails with "backward through the graph a second time", or adds too much or too little. The
gradients of such weights are computed in the input's half, whose path they are on. So are those of all weights of a
stage under activation checkpointing, whose forward PyTorch would repeat for each weight of the weights' half."""
import torch
from torch.autograd.graph import get_gradient_edge
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._backward import stage_backward_input


def _node(value):
    """The node of the autograd graph that a tensor or an edge comes from, or None."""
    if isinstance(value, torch.Tensor):
        return get_gradient_edge(value).node if value.requires_grad else None
    return getattr(value, "node", None)


def _users(roots):
    """{node: nodes whose gradient it takes} of all nodes that lead to the roots."""
    users, todo = {root: [] for root in roots}, list(roots)
    while todo:
        user = todo.pop()
        for node, _ in user.next_functions:
            if node is None:
                continue
            if node not in users:
                users[node] = []
                todo.append(node)
            users[node].append(user)
    return users


def _reached(first, users, end=()):
    """Nodes that are reached from `first`, and those of `end` at which the search stopped."""
    found, stopped, todo = set(first), set(), list(first)
    while todo:
        for user in users.get(todo.pop(), ()):
            if user in end:
                stopped.add(user)
            elif user not in found:
                found.add(user)
                todo.append(user)
    return found, stopped


def meets_once(outputs, inputs, weights):
    """Of each weight, whether its gradient comes from one operator that the inputs lead to."""
    roots = {n for n in map(_node, outputs) if n}
    users = _users(roots)
    path, _ = _reached([n for n in map(_node, inputs) if n in users], users)
    answer = []
    for weight in weights:
        own, meets = _reached([_node(weight)], users, path)
        answer.append(len(meets) <= 1 and not own & roots)
    return answer


class SplitStage(PipelineStage):
    """once: {number of a weight: whether the weights' half computes it}, found at the first micro-batch that trains it."""

    def backward_maybe_with_nosync(self, backward_type, bwd_kwargs, last_backward=False):
        if backward_type != "input":
            return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        outputs, values = bwd_kwargs["stage_output"], list(bwd_kwargs["input_values"])
        weights = {i: p for i, p in enumerate(self.submod.parameters()) if p.requires_grad}
        once = self.__dict__.setdefault("once", {})
        new = [i for i in weights if i not in once]
        if new:
            again = getattr(self.submod, "checkpoint", False)
            once.update(zip(new, [False] * len(new) if again else
                            meets_once(outputs, values, [weights[i] for i in new])))
        if isinstance(self.submod, FSDPModule):
            self.submod.set_reshard_after_backward(False)
            self.submod.set_requires_gradient_sync(False)
        found, groups = stage_backward_input(outputs, bwd_kwargs["output_grads"],
                                             values + [p for i, p in weights.items() if not once[i]],
                                             iter([p for i, p in weights.items() if once[i]]))
        return found[:len(values)], groups
