"""PyTorch models for Elapse: measure a model, run a plan. docs/torch.md."""
from .errors import BridgeError

__version__ = "0.1.0"
__all__ = ["BridgeError", "Elastic", "chain_of", "record"]


def __getattr__(name):
    # torch is imported only by what needs it, so that formats can be checked without it.
    if name == "record":
        from .record import record
        return record
    if name == "Elastic":
        from .elastic import Elastic
        return Elastic
    if name == "chain_of":
        from .chain import chain_of
        return chain_of
    raise AttributeError(name)
