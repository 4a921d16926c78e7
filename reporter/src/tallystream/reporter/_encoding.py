"""A snapshot's bytes, made in turns: a large one would keep the application's threads waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.reporter._turns import in_turns, let_others_run
from tallystream.reporter.record import encode

if TYPE_CHECKING:
    from tallystream.reporter.record import Snapshot

TOGETHER = 10
"""Metrics that are encoded in one go: pieces that are small for the memory allocator, too."""

_encoder = msgspec.json.Encoder()


def encode_in_turns(snapshot: Snapshot) -> bytes:
    """Return what `record.encode` returns."""
    metrics = snapshot.metrics
    around = encode(msgspec.structs.replace(snapshot, metrics=[]))
    chunks = [_encoder.encode(metrics[at : at + TOGETHER])[1:-1] for at in in_turns(range(0, len(metrics), TOGETHER))]
    let_others_run()
    return around[:-2] + b",".join(chunks) + around[-2:]
