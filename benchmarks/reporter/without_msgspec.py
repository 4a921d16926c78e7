"""What it takes of msgspec to import the package and count, for interpreters that msgspec can't be installed for.

That is 3.13 without GIL, where msgspec's own C does not compile. Records can't be made with it.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any


class Struct:
    """A class that takes the options of a record's class, and knows its fields."""

    def __init_subclass__(cls, tag: str | None = None, **options: object) -> None:
        fields = [name for base in reversed(cls.__mro__) for name in getattr(base, "__annotations__", {})]
        cls.__struct_config__ = SimpleNamespace(tag=tag)  # type: ignore[attr-defined]
        cls.__struct_fields__ = tuple(fields)  # type: ignore[attr-defined]


class Anything:
    """An encoder, a decoder, a constraint: made, never used."""

    def __init__(self, *given: object, **options: object) -> None:
        pass


def install() -> None:
    """Have `import msgspec` find this."""
    module: Any = ModuleType("msgspec")
    module.Struct, module.Meta, module.field = Struct, Anything, Anything
    module.json = SimpleNamespace(Encoder=Anything, Decoder=Anything)
    module.structs = SimpleNamespace(replace=None)
    module.DecodeError = module.ValidationError = module.MsgspecError = ValueError
    sys.modules["msgspec"] = module
