"""A model as a chain of items, and stages made of runs of items.

torch.export gives the model's operators in the order of their execution. A node that depends on a
trainable parameter belongs to an item. The other nodes (masks, positions, the input itself) are
computed again by each stage that reads them, so that no message carries them. A boundary is cut
through every value that is computed before it and read after it. A long skip therefore travels
from stage to stage, because PyTorch's pipeline runtime sends to neighbours only.

Stages share the parameters of the model they were made of, under the model's own names."""
import contextlib
import os
import sys

import torch
import torch.utils.checkpoint
from torch import fx, nn
from torch.utils import _pytree as pytree

from .errors import BridgeError


class Item:
    """Nodes [first, last) of the chain's operators. layer: -1 before the first layer."""

    def __init__(self, name, first, last, layer):
        self.name, self.first, self.last, self.layer = name, first, last, layer


class _ContiguousGrad(torch.autograd.Function):
    """Messages of PyTorch's runtime must be contiguous; a gradient may come transposed."""

    @staticmethod
    def forward(ctx, value):
        return value.view_as(value)

    @staticmethod
    def backward(ctx, grad):
        return grad.contiguous()


class Stage(nn.Module):
    """Runs items [first, last) of a chain: values of the boundary in, values of the next one out.

    The model's inputs come as keywords of the names in chain.input_names; the stage ignores those
    that it does not read."""

    def __init__(self, graph_module, inputs, checkpoint, buffers=()):
        """buffers: those that the items may write."""
        super().__init__()
        self.graph = graph_module
        self.inputs = inputs
        self.checkpoint = checkpoint
        self.written = tuple(buffers)

    def forward(self, *values, **inputs):
        given = [_ContiguousGrad.apply(v) if v.requires_grad else v for v in values]
        given += [inputs[name] for name in self.inputs]
        if self.checkpoint and torch.is_grad_enabled():
            out = torch.utils.checkpoint.checkpoint(
                self.graph, *given, use_reentrant=False, context_fn=lambda: (contextlib.nullcontext(), self._keeping()))
        else:
            out = self.graph(*given)
        # The runtime detaches outputs in place, which views do not allow. Messages must be contiguous.
        out = tuple(v.clone(memory_format=torch.contiguous_format) if v._is_view() else v.contiguous() for v in out)
        return out[0] if len(out) == 1 else out

    @contextlib.contextmanager
    def _keeping(self):
        """While a forward is repeated, buffers such as running means keep what the first one made of them."""
        before = [b.clone() for b in self.written]
        try:
            yield
        finally:
            for buffer, value in zip(self.written, before):
                buffer.data.copy_(value)  # `.data`: autograd has saved the buffer, and would refuse a new version


def _in_place(node):
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _random(node):
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _drops_nothing(node):
    """A dropout with probability 0."""
    for i, arg in enumerate(node.target._schema.arguments):
        if arg.name in ("p", "dropout_p"):
            given = node.args[i] if i < len(node.args) else node.kwargs.get(arg.name,
                                                                            arg.default_value)
            return given == 0
    return False


def _attribute(root, path):
    for part in path.split("."):
        root = getattr(root, part)
    return root


def _place(node):
    """The operator and the line of the model that it comes from, for messages."""
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    where = ""
    if lines:
        parts = lines[-1].split('"')
        where = " at " + parts[1] + ":" + parts[2].split("line ")[1].split(",")[0].strip()
    return f"'{node.target}'{where}"


class Chain:
    """Made by chain_of(). Boundary b lies before item b; boundary 0 has no values.

    input_names: keywords of a stage, in the order of the flattened inputs of the model.
    output(values): the model's own output from the values of the last stage."""

    def __init__(self, module, args, kwargs):
        self.module = module
        _check_hooks(module)
        self.given, self.form = pytree.tree_flatten((tuple(args), dict(kwargs)))
        self.keys = list(kwargs)
        self.exported = _export(module, args, kwargs)
        self._classify()
        self._group(module)
        self._boundaries()

    # ---- which node belongs where ------------------------------------------------------------

    def _classify(self):
        gm = self.exported
        trainable = {id(p) for p in gm.parameters() if p.requires_grad}
        mutated = set()
        for node in gm.graph.nodes:
            if _in_place(node):
                mutated.update(a for a in node.args if isinstance(a, fx.Node))
        self.inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.input_names = [f"in{i}" for i in range(len(self.inputs))]
        main, self.constant, self.attribute = set(), {}, {}
        # What is computed from weights and buffers alone is computed anew each time, because both may change.
        lasting = {id(t) for t in (*self.module.parameters(), *self.module.buffers())}
        fixed, changing = set(), set()
        self.ops = []
        for node in gm.graph.nodes:
            before = node.all_input_nodes
            if node.op == "get_attr":
                value = _attribute(gm, node.target)
                self.attribute[node] = value
                if id(value) in trainable:
                    main.add(node)
                elif node not in mutated:
                    fixed.add(node)
                    if id(value) in lasting:
                        changing.add(node)
            elif node.op in ("call_function", "call_module", "call_method"):
                effect = _in_place(node) or _random(node)
                if any(b in main for b in before) or effect:
                    main.add(node)
                    self.ops.append(node)
                elif all(b in fixed and b not in changing for b in before) and node not in mutated:
                    fixed.add(node)
            elif node.op == "output":
                self.result = node
        self.main = main
        self.fixed = fixed
        flat = pytree.tree_leaves(self.result.args[0])
        self.results = [r for r in flat if isinstance(r, fx.Node)]
        if len(self.results) != len(flat) or not all(r in main for r in self.results):
            odd = [r for r in flat if not (isinstance(r, fx.Node) and r in main)]
            raise BridgeError(
                f"cannot cut the model: its output holds "
                f"{_place(odd[0]) if isinstance(odd[0], fx.Node) else repr(odd[0])}, which no parameter leads to",
                hint="return only tensors that are computed with parameters")

    def _key(self, node, containers):
        """The path of the item that a node belongs to, or None: that of the nodes around it."""
        stack = node.meta.get("nn_module_stack")
        if not stack:
            return None
        path = list(stack.values())[-1][0].split("@")[0]
        parts = path.split(".") if path else []
        for n in range(1, len(parts) + 1):
            prefix = ".".join(parts[:n])
            if prefix not in containers:
                return prefix
        return None

    def _group(self, module):
        """Items: a child of a list of layers, or a module beside such lists."""
        listed = [name for name, m in module.named_modules()
                  if isinstance(m, (nn.ModuleList, nn.Sequential)) and len(m) > 1 and name]
        # Inside an element of a list (a residual block, a transformer layer) nothing is divided.
        outer, elements = [], set()
        for name in listed:
            parts = name.split(".")
            if any(".".join(parts[:n]) in elements for n in range(1, len(parts) + 1)):
                continue
            outer.append(name)
            elements.update(f"{name}.{child}" for child, m in module.get_submodule(name).named_children()
                            if not isinstance(m, (nn.ModuleList, nn.Sequential)))
        containers = set()
        for name in outer:
            parts = name.split(".")
            containers.update(".".join(parts[:n]) for n in range(1, len(parts) + 1))
        at = module
        prefix = ""
        while not outer and len(list(at.named_children())) == 1:
            child, at = next(at.named_children())
            prefix = f"{prefix}.{child}" if prefix else child
            containers.add(prefix)
        runs = []
        for i, node in enumerate(self.ops):
            key = self._key(node, containers)
            if runs and (key is None or key == runs[-1][0]):
                runs[-1][2] = i + 1
            else:
                runs.append([key, i, i + 1])
        merged = []
        for run in runs:
            nodes = self.ops[run[1]:run[2]]
            own = set(nodes)
            weights = any(a in self.attribute and a in self.main
                          for n in nodes for a in n.all_input_nodes)
            outside = any(_in_place(n) and isinstance(n.args[0], fx.Node) and n.args[0] not in own
                          and n.args[0].op != "get_attr" for n in nodes)
            if merged and (not weights or outside or not merged[-1][3]):
                merged[-1][2] = run[2]
                merged[-1][3] = merged[-1][3] or weights
                merged[-1][0] = merged[-1][0] if merged[-1][4] else run[0]
                merged[-1][4] = merged[-1][4] or weights
            else:
                merged.append([run[0], run[1], run[2], weights, weights])
        # Layers, which freeze one by one: the elements of lists. A model without lists has a layer
        # an item. What follows the last layer never freezes.
        layers = [i for i, run in enumerate(merged)
                  if (run[0] or "").rpartition(".")[0] in outer]
        if len(layers) < 2:
            layers = list(range(len(merged)))
        self.num_layers, layer, self.items = len(layers), -1, []
        for i, run in enumerate(merged):
            layer += i in layers or i == layers[-1] + 1
            self.items.append(Item(run[0] or f"part{i}", run[1], run[2], layer))
        if not self.items:
            raise BridgeError("cannot cut the model: no operator reads a trainable parameter")

    def _boundaries(self):
        place = {}
        for i, item in enumerate(self.items):
            for node in self.ops[item.first:item.last]:
                place[node] = i
        last = {}
        for node, i in place.items():
            for before in self._needs(node):
                if before in place:
                    last[before] = max(last.get(before, 0), i)
        for node in self.results:
            last[node] = len(self.items)
        self.live = [[] for _ in range(len(self.items) + 1)]
        for node in self.ops:
            for b in range(place[node] + 1, last.get(node, 0) + 1):
                if b < len(self.items):
                    self.live[b].append(node)
        self.live[len(self.items)] = list(self.results)
        for b in range(1, len(self.items)):
            for node in self.live[b]:
                value = node.meta.get("val")
                if not isinstance(value, torch.Tensor):
                    raise BridgeError(f"cannot cut the model before '{self.items[b].name}': "
                                      f"{_place(node)} gives no single tensor")

    def _needs(self, node):
        """The nodes of items that a node reads, through nodes that are computed anew."""
        found, todo, seen = [], list(node.all_input_nodes), set()
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.add(n)
            if n in self.main:
                found.append(n)
            else:
                todo.extend(n.all_input_nodes)
        return found

    # ---- stages ------------------------------------------------------------------------------

    def stage(self, first, last, checkpoint=False):
        """The Stage of items [first, last). It shares parameters with the model."""
        graph = fx.Graph()
        copies = {}
        for i, node in enumerate(self.live[first] if first else []):
            copies[node] = graph.placeholder(f"value{i}")
        wanted = [self.ops[i] for item in self.items[first:last]
                  for i in range(item.first, item.last)]
        order = {n: i for i, n in enumerate(self.exported.graph.nodes)}
        need, todo = set(wanted), list(wanted)
        while todo:
            for before in todo.pop().all_input_nodes:
                if before not in need and before not in copies:
                    need.add(before)
                    if before not in self.fixed or before.op == "get_attr":
                        todo.append(before)
        inputs = []
        for name, node in zip(self.input_names, self.inputs):
            if node in need:
                copies[node] = graph.placeholder(name)
                inputs.append(name)
        for node in sorted(need - set(copies), key=lambda n: order[n]):
            if node in self.fixed and node.op != "get_attr":
                setattr(self.exported, f"_elapse_fixed_{order[node]}",
                        self._value(node).contiguous())
                copies[node] = graph.get_attr(f"_elapse_fixed_{order[node]}")
            else:
                copies[node] = graph.node_copy(node, lambda n: copies[n])
        graph.output(tuple(copies[n] for n in self.live[last]))
        return Stage(fx.GraphModule(self.exported, graph), inputs, checkpoint, self.buffers(first, last).values())

    def _value(self, node):
        """The value of a node that depends on no input."""
        if node not in self.constant:
            if node.op == "get_attr":
                return self.attribute[node]
            load = lambda n: self._value(n)
            args, kwargs = fx.map_arg((node.args, node.kwargs), load)
            with torch.no_grad():
                self.constant[node] = node.target(*args, **kwargs)
        return self.constant[node]

    def keywords(self, args, kwargs):
        """The model's inputs as keywords of stages. Refused: inputs of another form than those that the model was cut for,
        and other values of what is no tensor, because the graph holds the values."""
        ordered = {k: kwargs[k] for k in self.keys if k in kwargs} if len(kwargs) == len(self.keys) else kwargs
        flat, form = pytree.tree_flatten((tuple(args), dict(ordered)))
        if form != self.form:
            raise BridgeError(f"the batch has the inputs {_form(args, kwargs)}, the model was cut for "
                              f"{_form(*pytree.tree_unflatten(self.given, self.form))}",
                              hint="let all batches have the same inputs (collate_fn)")
        for node, x, first in zip(self.inputs, flat, self.given):
            if isinstance(first, torch.Tensor) != isinstance(x, torch.Tensor) or \
                    not isinstance(x, torch.Tensor) and not (x is first or x == first):
                raise BridgeError(f"input '{node.name}' is {_shown(x)}, the model was cut for {_shown(first)}",
                                  hint="give it as a tensor, or set it in the model, whose changes are seen")
            if isinstance(x, torch.Tensor) and x.dtype != first.dtype:
                raise BridgeError(f"input '{node.name}' is of {x.dtype}, the model was cut for {first.dtype}",
                                  hint="let all batches have one dtype (collate_fn)")
        return dict(zip(self.input_names, flat))

    def output(self, values):
        flat = [values] if isinstance(values, torch.Tensor) else list(values)
        spec = self.exported._out_spec if hasattr(self.exported, "_out_spec") else \
            self.exported.graph._codegen.pytree_info.out_spec
        return pytree.tree_unflatten(flat, spec)

    def weights(self, first, last):
        """{name: parameter} of items [first, last), under the model's names."""
        names = {id(p): n for n, p in self.module.named_parameters()}
        found = {}
        for item in self.items[first:last]:
            for node in self.ops[item.first:item.last]:
                for before in node.all_input_nodes:
                    if before in self.attribute and before in self.main:
                        value = self.attribute[before]
                        found[names.get(id(value), before.target)] = value
        return found

    def buffers(self, first, last):
        """{name: buffer} that operators of items [first, last) read and may write, as batch_norm does its running means."""
        names = {id(b): n for n, b in self.module.named_buffers()}
        return {names[id(self.attribute[a])]: self.attribute[a] for item in self.items[first:last]
                for node in self.ops[item.first:item.last] for a in node.all_input_nodes
                if a in self.attribute and id(self.attribute[a]) in names}

    def frozen_items(self, plan):
        frozen = plan.get("frozen_layers", 0)
        return sum(item.layer < frozen for item in self.items) if frozen else 0

    def repeats(self, first, last):
        """Whether items [first, last) give a sample the same values each time, whatever weights of
        other items become: no dropout, no running means, no weight that a later item trains."""
        later = self.weights(last, len(self.items))
        return not any(n in later for n in self.weights(first, last)) and not any(
            _in_place(node) or _random(node) and not _drops_nothing(node)
            for item in self.items[first:last] for node in self.ops[item.first:item.last])

    def tied(self):
        """{name: [items]} of parameters that more than one item reads."""
        users = {}
        for i in range(len(self.items)):
            for name in self.weights(i, i + 1):
                users.setdefault(name, []).append(i)
        return {name: items for name, items in users.items() if len(items) > 1}

    def shape_key(self, i):
        """Equal keys: items of equal operators and shapes, whose times are equal."""
        item = self.items[i]
        known = {}
        key = []
        for node in self.ops[item.first:item.last]:
            args = []
            for a in pytree.tree_leaves((node.args, node.kwargs)):
                if isinstance(a, fx.Node):
                    value = a.meta.get("val", self.attribute.get(a))
                    shape = tuple(value.shape) if isinstance(value, torch.Tensor) else None
                    args.append((known.get(a, -1), shape))
                else:
                    args.append(repr(a))
            known[node] = len(known)
            key.append((str(node.target), tuple(args)))
        outs = [known.get(n, -1) for n in self.live[i + 1]]
        return repr((key, outs, [tuple(n.meta["val"].shape) for n in self.live[i]]))


def _export(module, args, kwargs):
    for part in module.modules():  # an encoder-decoder's halves have configurations of their own
        config = getattr(part, "config", None)
        if getattr(config, "use_cache", None):
            config.use_cache = False
    own = []
    try:
        # Autocast is the step's: the graph has the model's operators, and they are cast as they run.
        with _own_functions(own), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            exported = torch.export.export(module, tuple(args), dict(kwargs), strict=False)
    except Exception as error:
        why = _why(error)
        hint = "use torch.where or torch.cond in place of `if`" if "control flow" in why else ""
        raise BridgeError(why, hint=hint) from error
    if own:
        raise BridgeError(f"cannot cut the model: its autograd.Function '{own[0]}' has a backward of its own, which the graph "
                          "of operators lacks", hint="write it with tensor operations, such as x + (f(x) - x).detach(), or "
                          "as torch.library.custom_op with register_autograd")
    try:
        made = exported.module(check_guards=False)
    except TypeError:
        made = exported.module()
    # An export asserts the dtype that each conversion (`x.float()`) was given; under autocast the step's is another.
    for node in reversed(made.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            made.graph.erase_node(node)
    made.recompile()
    return made


@contextlib.contextmanager
def _own_functions(found):
    """Names of the model's own autograd.Functions that are applied meanwhile. An export keeps their forward only."""
    kind = torch.autograd.Function
    before = vars(kind).get("apply")

    def apply(cls, *args, **kwargs):
        if not cls.__module__.startswith("torch."):
            found.append(cls.__name__)
        original = before.__get__(None, cls) if before else super(kind, cls).apply
        return original(*args, **kwargs)
    kind.apply = classmethod(apply)
    try:
        yield
    finally:
        if before:
            kind.apply = before
        else:
            del kind.apply


def _check_hooks(module):
    """Refuse hooks on gradients: modules' would never run, and those of weights would see a micro-batch's part of them."""
    for name, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise BridgeError(f"module '{name}' has a backward hook, which stages do not run",
                              hint="remove it")
    for name, p in module.named_parameters():
        if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
            raise BridgeError(f"weight '{name}' has a hook on its gradient, which would see a part of it in each micro-batch",
                              hint="remove it; train.clip_norm clips")


def _shown(x):
    return f"a tensor of {x.dtype}" if isinstance(x, torch.Tensor) else repr(x)[:60]


def _form(args, kwargs):
    return ", ".join([str(len(args))] * bool(args) + list(kwargs)) or "none"


def _why(error):
    """One line of an export's failure: the operator and the line of the model, if it names them."""
    import re
    import traceback
    text = str(error)
    frames = [f for f in traceback.extract_tb(error.__traceback__)
              if "/torch/" not in f.filename and "elapse_torch" not in f.filename]
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    found = re.findall(r'File "([^"]+)", line (\d+)', text)
    found = [f for f in found if "/torch/" not in f[0]]
    if found:
        where = f" at {found[-1][0]}:{found[-1][1]}"
    code = f" ('{frames[-1].line}')" if frames and frames[-1].line else ""
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    if "data-dependent" in text or "GuardOnDataDependent" in type(error).__name__:
        first = "control flow depends on the values of a tensor"
    return f"cannot cut the model{where}{code}: {first[:160].rstrip('.')}"


def note_compiled(module):
    """Say once that compiled modules run as exported, and what freezing does to them elsewhere."""
    name = next((n or "the model" for n, m in module.named_modules()
                 if isinstance(m, torch._dynamo.OptimizedModule) or m._compiled_call_impl), None)
    if name and not _NOTED and os.environ.get("RANK", "0") == "0":
        _NOTED.append(name)
        print(f"elapse-torch: {name} is compiled: stages run its exported operators instead, without torch.compile. In a "
              "loop of your own each freeze compiles it again, and after 8 times PyTorch goes on without compiling",
              file=sys.stderr)


_NOTED = []


def chain_of(module, args=(), kwargs=None):
    """Cut a model into a chain, for inputs of one micro-batch's size. BridgeError names the operator
    and the line that cannot be cut."""
    note_compiled(module)
    return Chain(module, args, kwargs or {})
