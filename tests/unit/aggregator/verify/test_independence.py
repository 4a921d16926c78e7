"""The replay shares the reader of records with the table, and no other code: the modules that it imports."""

from __future__ import annotations

import ast
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

OURS = "tallystream"
PACKAGE = "tallystream_aggregator.verify"
FORBIDDEN = ("tallystream_aggregator.table", "tallystream_aggregator.sums", "tallystream_aggregator.spark", "pyspark")
LIBRARIES = ("google.protobuf", "opentelemetry.proto", "msgspec")
READER = {
    "tallystream.record",
    "tallystream.decoding",
    "tallystream.errors",
    "tallystream.ulid",
    "tallystream_aggregator.table.records.decode",
    "tallystream_aggregator.table.records.refusals",
    "tallystream_aggregator.sums",  # the type of a metric's identity
}
CORE = ("decode", "otlp", "sketches", "lives", "rules", "replay", "advance", "check", "published", "tags")


def imported(module: str) -> set[str]:
    """Return every module that a module imports, also only for types or within a function."""
    spec = find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            found |= {_module(f"{node.module}.{alias.name}", str(node.module)) for alias in node.names}
    return found


def _module(name: str, parent: str) -> str:
    """Return `name` if it is one of our modules, or `parent` if it is a name in that module."""
    if not parent.startswith(OURS):
        return parent
    try:
        return name if find_spec(name) else parent
    except ModuleNotFoundError:  # the parent is a module, not a package
        return parent


def reached(module: str) -> set[str]:
    """Return every module that a module imports, and all imports of those that are ours."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        new = imported(waiting.pop()) - found
        found |= new
        waiting += [name for name in new if name.startswith(OURS) and _is_file(name)]
    return found


def _is_file(name: str) -> bool:
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


@pytest.mark.parametrize("name", CORE)
def test_the_replay_imports_only_its_own_package_the_reader_and_libraries(name: str) -> None:
    """It imports no rule, sketch or sum of the table. Libraries are the standard one, protobuf and msgspec."""
    for module in reached(f"{PACKAGE}.{name}") - READER:
        standard = module.partition(".")[0] in sys.stdlib_module_names
        assert module.startswith((PACKAGE, *LIBRARIES)) or standard, module


def test_the_command_imports_neither_the_table_nor_spark() -> None:
    """It shares the reader of topics and of records, and the rows of the ledger, and no code that computes a sum."""
    found = reached(f"{PACKAGE}.job")
    assert f"{PACKAGE}.replay" in found
    assert not [module for module in found - READER if module.startswith(FORBIDDEN)]
