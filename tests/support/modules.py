"""The modules of the four distributions."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import tallystream
import tallystream_aggregator
import tallystream_cli
import tallystream_dashboards

PROGRAM = "tallystream_dashboards.page.app"  # Streamlit runs it


def modules() -> Iterator[ModuleType]:
    """Yield every module of the four distributions that can be imported on its own."""
    for top in (tallystream, tallystream_aggregator, tallystream_dashboards, tallystream_cli):
        yield top
        for found in pkgutil.walk_packages(top.__path__, f"{top.__name__}."):
            if found.name != PROGRAM and found.name.rpartition(".")[2] != "__main__":
                yield importlib.import_module(found.name)
