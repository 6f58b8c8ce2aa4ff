"""framework_flags.py ROOT PACKAGES: every flag of the real parsers stands in a list of profiles/frameworks.

ROOT is the tree of Elapse, PACKAGES a folder with the unpacked wheels of megatron-core 0.19.2, torchtitan 0.3.0 and
transformers 5.24.0 and the source of deepspeed 0.19.8 (pip download --no-deps). Nothing of them is imported: flags are
read from their syntax trees. Prints the flags that no row names, and exits 1 if there is one."""
import ast
import glob
import os
import re
import sys

root, packages = sys.argv[1:3]


def tree(path):
    return ast.parse(open(os.path.join(packages, path)).read())


def classes(top):
    found = {}
    for folder, _, files in os.walk(os.path.join(packages, top)):
        for name in files:
            if name.endswith(".py"):
                try:
                    nodes = ast.walk(ast.parse(open(os.path.join(folder, name)).read()))
                except SyntaxError:
                    continue
                for node in nodes:
                    if isinstance(node, ast.ClassDef):
                        found.setdefault(node.name, node)
    return found


def members(cls, known):
    out = []
    for base in cls.bases:
        name = getattr(base, "id", getattr(base, "attr", ""))
        if name in known and known[name] is not cls:
            out += members(known[name], known)
    return out + [s for s in cls.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]


def megatron():
    args, known = tree("megatron/training/arguments.py"), classes("megatron")
    default = next(ast.literal_eval(n.value) for n in ast.walk(args)
                   if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "exclude")
    for node in ast.walk(args):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name == "add_argument":
            yield from (a.value[2:] for a in node.args if isinstance(a, ast.Constant) and a.value.startswith("--"))
        elif name == "ArgumentGroupFactory" and node.args[0].id in known:
            leave = default if any(isinstance(k.value, ast.Name) for k in node.keywords) else \
                [v for k in node.keywords for v in ast.literal_eval(k.value)]
            for m in members(known[node.args[0].id], known):
                value = ast.unparse(m.value) if m.value else ""
                if m.target.id in leave:
                    continue
                negative = ast.unparse(m.annotation) == "bool" and (value == "True" or "default=True" in value)
                yield from ([f"no-{m.target.id}", f"disable-{m.target.id}"] if negative else [m.target.id])


def torchtitan():
    sections = {"training": "TrainingConfig", "parallelism": "ParallelismConfig", "compile": "CompileConfig",
                "comm": "CommConfig", "debug": "DebugConfig"}
    known = classes("torchtitan/config")
    for section, name in sections.items():
        yield from (f"{section}.{m.target.id}" for m in members(known[name], known))
    trainer = next(c for c in ast.walk(tree("torchtitan/trainer.py")) if isinstance(c, ast.ClassDef) and c.name == "Config")
    for m in members(trainer, {}):
        if m.target.id not in sections and m.target.id not in ("model_spec", "activation_checkpoint"):
            yield m.target.id if "str" in ast.unparse(m.annotation) else m.target.id + ".any"


def deepspeed():
    top = glob.glob(os.path.join(packages, "deepspeed-*"))[0] + "/deepspeed/"
    text = open(top + "runtime/config.py").read() + open(top + "runtime/constants.py").read()
    names = dict(re.findall(r'^([A-Z_0-9]+) = [\'"]([a-z_0-9]+)[\'"]', text, re.M))
    for constant in re.findall(r"get_scalar_param\(param_dict, ([A-Z_]+)", text):
        yield names[constant]
    known = classes(os.path.relpath(top + "runtime/zero", packages))
    for m in members(known["DeepSpeedZeroConfig"], {}):
        yield "zero_optimization." + m.target.id


def hf():
    cls = next(c for c in tree("transformers/training_args.py").body if isinstance(c, ast.ClassDef) and c.name == "TrainingArguments")
    yield from (m.target.id for m in members(cls, {}))


def rows(path, table):
    text = open(os.path.join(root, "profiles/frameworks", path)).read()
    text = text[text.index(table):]
    text = text[:text.index("};")]
    if "DEEPSPEED_ROWS(" in text and table != "define DEEPSPEED_ROWS":
        pass
    return re.findall(r'\b(?:COUNT|NUMBER|REAL|ON|SETS|WORD|LIST|FREE|LEFT|REFUSED)\((?:in )?"([^"]+)"|\{(?:in )?"([^"]+)", FLAG_', text)


def find(name, names):
    plain = name.replace("_", "-")
    return any(plain == n or (n.endswith("*") and plain.startswith(n[:-1])) for n in names)


lists = {
    "megatron": (megatron, [("megatron_rows.c", "megatron_rows[]")]),
    "torchtitan": (torchtitan, [("torchtitan_args.c", "torchtitan_rows[]")]),
    "deepspeed": (deepspeed, [("deepspeed_args.c", "define DEEPSPEED_ROWS")]),
    "hf": (hf, [("deepspeed_args.c", "hf_rows[]")]),
}
bad = 0
for framework, (real, tables) in lists.items():
    ours = [(a or b).replace("_", "-") for t in tables for a, b in rows(*t)]
    flags = sorted(set(real()))
    missing = [f for f in flags if not find(f, ours)]
    print(f"{framework}: {len(flags)} flags, {len(ours)} rows, in no list: {' '.join(missing) or 'none'}")
    bad |= bool(missing) or len(flags) < 20
sys.exit(bad)
