"""Names in Markdown are shown as text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tallystream_dashboards.page.html_table import literal

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = st.text(alphabet="ab1 `*_[]()!<>&\\~#+-.:/=|$@w\n\u202e", max_size=40)


@given(st.one_of(HOSTILE, st.text(max_size=40)))
@example("1. a")
@example("- a")
@example("`` `a` ``")
@example("a\\")
def test_markdown_of_a_text_is_that_text(text: str) -> None:
    """A parser finds only plain words and code, which together are the text."""
    tokens = PARSER.parse(f"**{literal(text)}** · text")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    children = tokens[1].children or []
    assert {token.type for token in children} <= {"text", "code_inline", "strong_open", "strong_close"}
    alone = PARSER.parse(literal(text))
    assert [token.type for token in alone] in ([], ["paragraph_open", "inline", "paragraph_close"])
    found = "".join(token.content for token in (alone[1].children or [] if alone else []))
    printable = " ".join(
        "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in word)
        for word in text.split()
    )
    assert found == printable


@pytest.mark.parametrize(
    "word",
    ["http://a.b", "HTTPS://a", "www.a.b", "x/www.a", "me@a.b", ":smile:", ":material/home:", ":red[x]", "a--b", "$x$"],
)
def test_what_streamlit_looks_for_is_code(word: str) -> None:
    """Addresses, emoji, icons, colors, dashes and formulas are found in plain text only: they are none."""
    assert literal(f"see {word} now") == f"see `{word}` now"


@pytest.mark.parametrize(
    "said",
    ["billing", "my_topic.v2-eu/0", "STOP in orders/0 (1 of 2 partitions): 2,360 records wait.", "≥ 10 min · 5%", ""],
)
def test_ordinary_words_stay_as_they_are(said: str) -> None:
    """Names as people choose them, and the sentences of statuses, are no code."""
    assert literal(said) == said
