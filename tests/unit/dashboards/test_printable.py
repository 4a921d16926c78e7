"""Text from Kafka, a store or the network in a terminal."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from tallystream_dashboards.printable import printable, printable_json


def test_printable_text_is_not_changed() -> None:
    """It may have letters of any language, symbols, emoji and spaces."""
    text = "orders-1 één Заказы 注文 €☕ [b]\\n"
    assert printable(text) == text


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_the_result_is_always_printable(text: str) -> None:
    """It has no control character, and UTF-8 can encode it."""
    for shown in (printable(text), printable_json(json.dumps(text, ensure_ascii=False))):
        assert not {unicodedata.category(letter) for letter in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
        shown.encode()


@settings(deadline=None)
@given(st.text(max_size=50))
def test_escaped_json_has_the_same_value(text: str) -> None:
    """A program reads the original text from it."""
    assert json.loads(printable_json(json.dumps({"group": text}, ensure_ascii=False))) == {"group": text}
