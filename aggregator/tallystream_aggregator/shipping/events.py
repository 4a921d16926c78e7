"""An event as a point: what annotates a graph. docs/stores.md shows the schema."""

from __future__ import annotations

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.sinks.base import Field, Point

MEASUREMENT = "tallystream.events"


class EventRow(msgspec.Struct, kw_only=True):
    """A row of `metrics-events`. `ts` is in epoch ms; an event that no record made has no offset."""

    kind: str
    app: str
    instance: str = ""
    life: str = ""
    ts: int
    topic: str = ""
    partition: int = -1
    offset: int = -1
    detail: str = ""


_decode = json_decoder(EventRow)


def event_point(value: bytes) -> Point:
    """Return the point of an event; the same event makes the same point.

    The detail is a tag: two limits that an instance reaches at once are two points.

    Raises:
        msgspec.DecodeError: it is not a row of `metrics-events`.
    """
    row = _decode(value)
    about = row.instance or row.app
    fields: dict[str, Field] = {"text": f"{row.kind}: {about}" + (f", {row.detail}" if row.detail else "")}
    if row.life:
        fields["life"] = row.life
    if row.offset >= 0:
        fields |= {"partition": row.partition, "offset": row.offset}
    tags = {"kind": row.kind, "app": row.app, "instance": row.instance, "detail": row.detail}
    return Point(MEASUREMENT, {name: value for name, value in tags.items() if value}, fields, row.ts)
