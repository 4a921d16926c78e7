"""Changes of bytes that a reader may not expect: flipped, cut, spliced, repeated, other numbers and other texts.

An input of a target is mostly lines: a key, a tab, and a value, which is often JSON.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

MAX_BYTES = 65_536
"""The longest input."""

NUMBERS = (
    *(b"0", b"-0", b"1", b"-1", b"0.5", b"1e400", b"5e-324", b"NaN", b"127", b"128", b"65535", b"2147483648"),
    *(b"4294967296", b"9007199254740993", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808"),
    *(b"-9223372036854775809", b"18446744073709551616", b"9" * 40, b"9" * 5_000, b"1700000000000", b"32503680000000"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 0.5, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1e308, float("nan"), float("inf")),
    *("", "x", "0", "\0", "\ud800", "größe", "x" * 600, "metrics:0", "AQ==", [], {}, [[]], [0], {"x": 1}, {"": ""}),
)
TEXTS = (
    *(
        b"",
        b"\0",
        b"\xff",
        b"\xed\xa0\x80",
        b"%00",
        b"%ff",
        b"\\ud800",
        b"\\u0000",
        b"\\",
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
    ),
    *(b"\n", b"\t", b"\r\n", b":", b",", b"\xef\xbb\xbf", b"[" * 100, b"\x80" * 10, b"\xff" * 9 + b"\x01"),
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")

Mutation = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def mutated(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return an input of the corpus with one to five changes."""
    data = bytearray(chance.choice(corpus))
    for _ in range(chance.choice([1, 1, 1, 2, 3, 5])):
        chance.choice(MUTATIONS)(chance, data, corpus)
    return bytes(data[:MAX_BYTES])


def _span(chance: random.Random, data: bytearray, longest: int = 64) -> tuple[int, int]:
    """Return a place in the data and one after it."""
    begin = chance.randrange(len(data) + 1)
    return begin, min(len(data), begin + chance.randint(1, longest))


def _flip(chance: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _set(chance: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    if data:
        data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])


def _put(chance: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    begin, end = _span(chance, data, 4)
    data[begin : chance.choice([begin, end])] = chance.choice(TEXTS)


def _cut(chance: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    begin, end = _span(chance, data)
    del data[begin : end if chance.random() < 0.8 else len(data)]


def _repeat(chance: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    begin, end = _span(chance, data)
    times = chance.choice([1, 2, 10, 300])
    data[begin:begin] = data[begin:end] * times
    del data[MAX_BYTES:]


def _splice(chance: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    other = bytearray(chance.choice(corpus))
    begin, end = _span(chance, other, max(1, len(other)))
    at, until = _span(chance, data)
    data[at : chance.choice([at, until, len(data)])] = other[begin:end]


def _number(chance: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    found = list(_NUMBER.finditer(data))
    if found:
        begin, end = chance.choice(found).span()
        data[begin:end] = chance.choice(NUMBERS)


def _lines(chance: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    """Drop, repeat or swap lines, or take one of another input."""
    lines = bytes(data).split(b"\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    kind = chance.randrange(4)
    if kind == 0:
        del lines[one]
    elif kind == 1:
        lines.insert(other, lines[one])
    elif kind == 2:
        lines[one], lines[other] = lines[other], lines[one]
    else:
        lines.insert(one, chance.choice(chance.choice(corpus).split(b"\n")))
    data[:] = b"\n".join(lines)


def _json(chance: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    """Change a value somewhere in the JSON of a line: another value, one less, one twice, or one of another input."""
    lines = bytes(data).split(b"\n")
    at = chance.randrange(len(lines))
    head, tab, tail = lines[at].rpartition(b"\t")
    try:
        document = json.loads(tail)
        other = json.loads(chance.choice(chance.choice(corpus).split(b"\n")).rpartition(b"\t")[2])
    except (ValueError, RecursionError):
        return
    parents: list[Any] = [one for one in _nodes(document) if one and isinstance(one, (dict, list))]
    if not parents:
        return
    parent = chance.choice(parents)
    key = chance.choice(list(parent)) if isinstance(parent, dict) else chance.randrange(len(parent))
    kind = chance.randrange(5)
    if kind == 0:
        del parent[key]
    elif kind == 1:
        parent[key] = chance.choice([*_nodes(other)])
    elif kind == 2 and isinstance(parent, list):
        parent += [parent[key]] * chance.choice([1, 1, 30])
    elif kind == 2:
        parent[chance.choice(["", "x", "tags", "\0", "0", "-1"])] = parent[key]
    else:
        parent[key] = chance.choice(VALUES)
    text = json.dumps(document, ensure_ascii=chance.random() < 0.5, separators=(",", ":"))
    lines[at] = head + tab + text.encode("utf-8", "surrogatepass")
    data[:] = b"\n".join(lines)


def _nodes(document: Any) -> list[Any]:
    """Return a document and all values in it."""
    found, at = [document], 0
    while at < len(found):
        one = found[at]
        found += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        at += 1
    return found


MUTATIONS: tuple[Mutation, ...] = (
    *(_flip, _set, _put, _cut, _repeat, _splice, _number, _number, _lines, _lines, _json, _json, _json, _json),
)
