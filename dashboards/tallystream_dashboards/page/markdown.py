"""Text as text: names come from applications, brokers and addresses, and Streamlit reads what it draws as Markdown.

Escaping is not enough: Streamlit looks for addresses, emoji and icons in text that is already unescaped. It does not
look into code spans, so a word that is not plainly harmless becomes one.
"""

from __future__ import annotations

import re

from tallystream_aggregator.terminal import printable

_HARMLESS = re.compile(r"""["'(≥]*[^\W_]+(?:[-_.,/'%+][^\W_]+)*[%)"',.:;?!]*|[·≥]""")
_ADDRESS = re.compile(r"www\.", re.IGNORECASE)
_LIST = re.compile(r"\d+[.)]")


def literal(text: object) -> str:
    """Return Markdown that shows the text as it is: no link, image, icon, formula or emphasis.

    Runs of white space are shown as one space; other characters that can't be printed as their escapes in Python.
    """
    words = [printable(word) for word in str(text).split()]
    return " ".join(word if _harmless(word, first=not at) else _code(word) for at, word in enumerate(words))


def _harmless(word: str, *, first: bool) -> bool:
    listed = first and _LIST.fullmatch(word)
    return _HARMLESS.fullmatch(word) is not None and _ADDRESS.search(word) is None and not listed


def _code(word: str) -> str:
    """Return a code span: the fence is longer than any run of backticks inside, and a space keeps them apart."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", word)), default=0))
    space = " " if "`" in word else ""
    return f"{fence}{space}{word}{space}{fence}"
