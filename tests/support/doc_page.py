"""Writes a page of the documentation that has generated tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def update_page(path: Path, updated: Callable[[str], str]) -> None:
    """Write a page as `updated` changes it, and print whether that changed anything."""
    before = path.read_text(encoding="utf-8")
    after = updated(before)
    path.write_text(after, encoding="utf-8")
    sys.stderr.write(f"{path} {'was up to date' if after == before else 'is updated'}\n")
