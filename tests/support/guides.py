"""The shell commands and programs that pages of docs print, as the tests run them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"


def commands(name: str) -> list[list[str]]:
    """Return the words of each command in the `sh` blocks of a guide, without comments, in the order of the page."""
    lines = [line for block in blocks(name, "sh") for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def blocks(name: str, language: str) -> list[str]:
    """Return the text of each block of a language, in the order of the page. `../NAME` is a page of docs."""
    text = (GUIDES / f"{name}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
