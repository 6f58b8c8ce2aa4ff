"""libelapse by ctypes: a job, its plans, and what freezes. library/elapse.h says what each means."""
import ctypes as c
import json
import os

from . import program
from .errors import BridgeError

I64, F64, TEXT = c.c_int64, c.c_double, c.c_char_p


def struct(name, fields):
    """A struct whose first member is its size."""
    made = type(name, (c.Structure,), {"_fields_": [("size", c.c_size_t)] + fields})

    def new(**values):
        return made(size=c.sizeof(made), **values)
    return new


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("message", c.c_char * 512), ("hint", c.c_char * 256)]


JobOptions = struct("JobOptions", [("overrides", c.POINTER(TEXT)), ("num_overrides", c.c_size_t),
                                   ("dir", TEXT), ("profiles", TEXT)])
JobInfo = struct("JobInfo", [(n, TEXT) for n in ("name", "model", "cluster", "json", "cost_source",
                                                 "cost_label", "cost_note")] +
                 [(n, c.c_int) for n in ("num_layers", "num_items", "num_devices", "num_epochs")] +
                 [("num_samples", I64), ("num_params", I64)])
PlanOptions = struct("PlanOptions", [("frozen_layers", c.c_int), ("cached", c.c_int),
                                     ("simulate", c.c_int), ("current", c.c_void_p), ("turn", I64)])
FreezerOptions = struct("FreezerOptions", [("train_samples", I64), ("probe_source", I64)])
FreezerInfo = struct("FreezerInfo", [("policy", TEXT)] + [(n, c.c_int) for n in (
    "num_layers", "num_frozen", "uses_norms", "uses_evidence")] + [
    ("every_steps", I64), ("probe_samples", I64), ("max_loss", F64), ("spent", F64),
    ("spent_se", F64)])
Window = struct("Window", [("turn", I64), ("step", I64), ("steps_window", F64),
                           ("rate_window", F64), ("steps_left", F64), ("rate_left", F64)])
Losses = struct("Losses", [("loss", F64), ("loss_before", F64), ("fall_se", F64),
                           ("accuracy", F64), ("num_probe", I64)])
Pass = struct("Pass", [("seed", c.c_uint64), ("step", I64)] +
              [(n, c.c_int) for n in ("microbatch", "first_item", "end_item")] +
              [("share", F64), ("choice", TEXT), ("order", c.c_void_p)])
Decision = struct("Decision", [("num_frozen", c.c_int), ("lowest", c.c_int), ("change", c.c_int),
                               ("cost_low", F64), ("cost_high", F64), ("reason", c.c_char * 160)])


def _open():
    """Beside the program (as built, or installed), else by the system's search."""
    folder = os.environ.get("ELAPSE_LIB")
    try:
        bin_folder = os.path.dirname(os.path.realpath(program.path()))
    except BridgeError:
        bin_folder = ""
    places = [folder] if folder else [os.path.join(bin_folder, "..", "lib"), ""]
    for place in places:
        try:
            return c.CDLL(os.path.join(place, "libelapse.so.0"))
        except OSError:
            continue
    raise BridgeError("no library 'libelapse.so.0'", code=3,
                      hint="name its folder in ELAPSE_LIB, or install elapse")


_lib = []


def lib():
    if not _lib:
        _lib.append(_open())
        _lib[0].elapse_plan_info.restype = None
        _lib[0].elapse_freeze_ramp.restype = F64
        _lib[0].elapse_freeze_ramp.argtypes = [c.c_void_p, I64, I64, I64, I64]
    return _lib[0]


def call(name, *args):
    error = Error()
    if getattr(lib(), name)(*args, c.byref(error)):
        raise BridgeError(error.message.decode(), code={1: 2, 2: 1}.get(error.status, 3),
                          hint=error.hint.decode())


def left_out(**values):
    """[whether a backward leaves out the item's weight gradients] of a stage's items. values: of Pass."""
    found = (c.c_ubyte * (values["end_item"] - values["first_item"]))()
    call("elapse_freeze_choose", c.byref(Pass(**values)), found)
    return [bool(x) for x in found]


class Job:
    """A job file with overrides: plans, and the freezer."""

    def __init__(self, path, overrides=()):
        self.lib = lib()
        texts = (TEXT * max(1, len(overrides)))(*[o.encode() for o in overrides])
        options = JobOptions(overrides=texts, num_overrides=len(overrides))
        self.handle = c.c_void_p()
        self.call("elapse_job_load", path.encode(), c.byref(options), c.byref(self.handle))
        self.info = JobInfo()
        self.lib.elapse_job_info(self.handle, c.byref(self.info))
        self.json = json.loads(self.info.json)
        self.plan = c.c_void_p()
        self.freezer = None

    def call(self, name, *args):
        call(name, *args)

    def ramp(self, step, epoch, position, num_samples):
        return self.lib.elapse_freeze_ramp(self.handle, step, epoch, position, num_samples)

    def find_plan(self, frozen, cached, turn):
        """The plan for F frozen layers, which becomes the plan in force. As plan.json."""
        options = PlanOptions(frozen_layers=frozen, cached=cached, simulate=1, current=self.plan,
                              turn=turn)
        plan, text = c.c_void_p(), c.c_void_p()
        self.call("elapse_plan_find", self.handle, c.byref(options), c.byref(plan))
        self.lib.elapse_plan_free(self.plan)
        self.plan = plan
        self.call("elapse_plan_json", plan, c.byref(text))
        found = json.loads(c.string_at(text))
        c.CDLL(None).free(text)
        return found

    def open_freezer(self, train_samples, probe_source):
        options = FreezerOptions(train_samples=train_samples, probe_source=probe_source)
        self.freezer = c.c_void_p()
        self.call("elapse_freezer_new", self.handle, c.byref(options), c.byref(self.freezer))
        info = FreezerInfo()
        self.lib.elapse_freezer_info(self.freezer, c.byref(info))
        return info

    def begin(self, window):
        due = c.c_int()
        self.call("elapse_freezer_begin", self.freezer, c.byref(Window(**window)), c.byref(due))
        return bool(due.value)

    def ask(self):
        frozen = c.c_int()
        self.lib.elapse_freezer_ask(self.freezer, c.byref(frozen))
        return frozen.value

    def losses(self, losses):
        self.call("elapse_freezer_losses", self.freezer, c.byref(Losses(**losses)))

    def share(self, frozen, share, share_se):
        self.call("elapse_freezer_share", self.freezer, frozen, F64(share), F64(share_se))

    def end(self):
        self.call("elapse_freezer_end", self.freezer)

    def decide(self, turn, norms):
        decision = Decision()
        array = (F64 * len(norms))(*norms) if norms else None
        self.call("elapse_freezer_decide", self.freezer, I64(turn), array, len(norms or ()),
                  self.plan if self.plan else None, c.byref(decision))
        return decision

    def close(self):
        for name in ("freezer", "plan", "handle"):
            what = {"freezer": "freezer", "plan": "plan", "handle": "job"}[name]
            getattr(self.lib, f"elapse_{what}_free")(getattr(self, name))
            setattr(self, name, None)
