"""Signatures, which `help()` prints, and representations in the four distributions contain no secrets."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from support.modules import modules

SECRET = "hush-hush-4711"
SECRET_FIELDS = {"kafka", "options", "password", "token"}
NO_SECRETS = {"tallystream_aggregator.table.storage.Head"}  # its token names the last entry of a log


def shown(module: ModuleType) -> Iterator[Any]:
    """Yield the functions and classes that a module defines, and what those classes define."""
    for one in vars(module).values():
        if getattr(one, "__module__", None) == module.__name__ and (inspect.isclass(one) or callable(one)):
            yield one
            if inspect.isclass(one):
                yield from (getattr(one, name) for name in vars(one) if name != "__class__")


def signature(thing: object) -> str:
    """Return the text of `inspect.signature`, or nothing if there is none."""
    try:
        return str(inspect.signature(thing)) if callable(thing) else ""
    except (TypeError, ValueError):
        return ""


def fields(kind: type) -> list[str]:
    """Return the names of the fields of a dataclass, a struct or a named tuple, none of any other class."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ()))


def with_secrets(kind: Any, names: list[str]) -> object:
    """Return an instance with a secret in every field that may contain one."""
    values = {name: SECRET if name in SECRET_FIELDS else None for name in names}
    if not dataclasses.is_dataclass(kind):
        return kind(**values)
    made = object.__new__(kind)  # without the checks of its constructor
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def test_no_signature_contains_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No default argument of a function, method or class contains the environment of the process."""
    monkeypatch.setenv("TALLYSTREAM_KAFKA_SASL_PASSWORD", SECRET)
    found = {f"{m.__name__}.{one.__qualname__}" for m in modules() for one in shown(m) if SECRET in signature(one)}
    assert found == set()


def test_no_representation_contains_a_secret() -> None:
    """The representation of settings has no librdkafka options, passwords or tokens."""
    checked, found = 0, set()
    for module in modules():
        for kind in shown(module):
            if inspect.isclass(kind) and SECRET_FIELDS & set(names := fields(kind)):
                checked += 1
                name = f"{kind.__module__}.{kind.__qualname__}"
                if SECRET in repr(with_secrets(kind, names)) and name not in NO_SECRETS:
                    found.add(name)
    assert found == set()
    assert checked > 5
