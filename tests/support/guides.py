"""The shell commands that the guides of docs/guides print, as the tests run them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def commands(name: str) -> list[list[str]]:
    """Return the words of each command in the `sh` blocks of a guide, without comments, in the order of the page."""
    text = (GUIDES / f"{name}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]
