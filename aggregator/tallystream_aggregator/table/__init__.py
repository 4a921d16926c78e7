"""The changelog table's rules, as plain Python: no Spark, no Kafka, no clock but the records' own.

`Table` takes records in offset order and gives the sums that changed, the dead letters, the events and the rows. Its
state packs to bytes (`pack`, `unpack`).
"""

from __future__ import annotations

from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.table.records.decode import Record
from tallystream_aggregator.table.records.outputs import DeadLetter, Event
from tallystream_aggregator.table.state import State, StateError, pack, unpack
from tallystream_aggregator.table.table import Changes, Table

__all__ = [
    "Changes",
    "DeadLetter",
    "Event",
    "Record",
    "State",
    "StateError",
    "Table",
    "TableSettings",
    "pack",
    "unpack",
]
