"""All targets. Each module has those of one part of the product."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.fuzz.target import TARGETS

__all__ = ["TARGETS"]

for module in iter_modules(__path__, f"{__name__}."):
    import_module(module.name)
