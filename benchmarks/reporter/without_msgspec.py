"""A replacement for msgspec that is enough to import the package and to count.

It is for interpreters without msgspec, such as 3.13 without GIL, where msgspec does not compile. It can't create
records.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any


class Struct:
    """A base class that accepts the options of a record class, and lists its fields."""

    def __init_subclass__(cls, tag: str | None = None, **options: object) -> None:
        fields = [name for base in reversed(cls.__mro__) for name in getattr(base, "__annotations__", {})]
        cls.__struct_config__ = SimpleNamespace(tag=tag)  # type: ignore[attr-defined]
        cls.__struct_fields__ = tuple(fields)  # type: ignore[attr-defined]


class Unused:
    """Stands for encoders, decoders and constraints, which are created and never used."""

    def __init__(self, *given: object, **options: object) -> None:
        pass


def install() -> None:
    """Make `import msgspec` return the replacement."""
    module: Any = ModuleType("msgspec")
    module.Struct, module.Meta, module.field = Struct, Unused, Unused
    module.json = SimpleNamespace(Encoder=Unused, Decoder=Unused)
    module.structs = SimpleNamespace(replace=None)
    module.DecodeError = module.ValidationError = module.MsgspecError = ValueError
    sys.modules["msgspec"] = module
