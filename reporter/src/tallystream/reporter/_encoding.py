"""A snapshot's bytes, made in turns: a large one would keep the application's threads waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.reporter._turns import in_turns, let_others_run
from tallystream.reporter.record import encode

if TYPE_CHECKING:
    from tallystream.reporter.record import Snapshot

TOGETHER = 20
"""Metrics that are encoded in one go."""

_encoder = msgspec.json.Encoder()
_COMMA = ord(",")


def encode_in_turns(snapshot: Snapshot) -> bytes:
    """Return what `record.encode` returns."""
    metrics = snapshot.metrics
    text = bytearray(encode(msgspec.structs.replace(snapshot, metrics=[])))
    del text[-1:]
    end = len(text) - 2  # where the list begins, and from the second piece on, where its last bracket is
    for at in in_turns(range(0, len(metrics), TOGETHER)):
        _encoder.encode_into(metrics[at : at + TOGETHER], text, end)
        if at:
            text[end] = _COMMA
        end = len(text) - 1
    let_others_run()  # the copy and the producer's threads, which want a processor then, are enough for a turn
    text += b"}"
    return bytes(text)
