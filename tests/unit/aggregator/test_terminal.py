"""Names that come from elsewhere: no letter of theirs reaches a terminal that is not for the eye."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from tallystream_aggregator.terminal import printable, printable_json

HOSTILE = "a\x1b[31mb\nc\x9bd\u202ee\u2066f\x00\u2028"


def test_what_is_for_the_eye_stays() -> None:
    """Letters of every language, signs, emoji and spaces are shown as they are."""
    text = "orders-1 één Заказы 注文 €☕ [b]\\n"
    assert printable(text) == text


def test_what_a_terminal_obeys_is_shown_escaped() -> None:
    """Escape sequences, newlines, the C1 controls, and the signs that turn the direction of writing."""
    assert printable(HOSTILE) == "a\\x1b[31mb\\nc\\x9bd\\u202ee\\u2066f\\x00\\u2028"
    assert printable("a\nb\x1b", keep="\n") == "a\nb\\x1b"


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_nothing_else_comes_through(text: str) -> None:
    """Whatever the text: no control, no format sign, no line separator, and nothing that UTF-8 can't write."""
    for shown in (printable(text), printable_json(json.dumps(text, ensure_ascii=False))):
        assert not {unicodedata.category(letter) for letter in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
        shown.encode()


@settings(deadline=None)
@given(st.text(max_size=50))
def test_json_says_the_same(text: str) -> None:
    """A program reads from it what was there."""
    assert json.loads(printable_json(json.dumps({"group": text}, ensure_ascii=False))) == {"group": text}
