"""Reads the positions rows: up to where sums are published."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.verify import reader
from tallystream_aggregator.verify.published import Moment, moment
from tallystream_aggregator.verify.tags import Tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.verify.decode import Identity, RawRecord
    from tallystream_aggregator.verify.published import Ends, PublishedSum

VISIBLE_S = 5.0
"""How long the newest positions row is waited for, if a sum is later than it."""


class Positions:
    """The positions rows on the topics: up to where sums are published, by how many `shards`.

    `newest` is the moment of the newest sums when this was made.

    Raises:
        ConfigError: there is none.
    """

    def __init__(self, kafka: Mapping[str, str], topics: Topics) -> None:
        self._kafka = kafka
        self._of, self._key, self._tags = f"{topics.table}:0", key(0), Tags()
        found = self._newest()
        if found is None:
            raise ConfigError("--topic-prefix", topics.prefix, f"{topics.table} has no positions of an aggregator")
        self.shards, self._tags = len(found[0].shards), found[0].tags
        if self.shards > 1:
            self._of, self._key = f"{topics.shards}:{self.shards}", key(self.shards)
            found = self._newest()
        if found is None:
            raise ConfigError("--topic-prefix", topics.prefix, f"{topics.agg} has no sum of all shards yet")
        self.newest, self._offset = found

    def _newest(self) -> tuple[Moment, int] | None:
        """Return the newest moment, and the offset of its row."""
        row = reader.newest(self._kafka, self._of, self._key)
        found = None if row is None else self._moment(row)
        return None if row is None or found is None else (found, row.offset)

    def _moment(self, row: RawRecord) -> Moment | None:
        try:
            found = moment(row.value)
        except ValueError as error:
            raise TallystreamError(f"{self._of}, offset {row.offset}: {error}") from error
        # The combiner's row does not have the tags.
        return found if found is None or self._key == key(0) else found._replace(tags=self._tags)

    def wait(self, later: Mapping[Identity, PublishedSum]) -> list[PublishedSum]:
        """Return the sums that are of a later moment than the newest positions row.

        A reader may see a transaction in one partition before it sees it in another one.
        """
        deadline = time.monotonic() + VISIBLE_S
        while True:
            newest = self._newest()
            ends = self.newest.ends if newest is None else newest[0].ends
            beyond = [one for one in later.values() if not one.within(ends)]
            if not beyond or time.monotonic() > deadline:
                return beyond
            time.sleep(reader.PAUSE_S)

    def moments(self, until: Ends | None) -> list[Moment]:
        """Return the moments of several shards that the topic has, in order: up to `until`, None from the newest on."""
        low, high = reader.bounds(self._kafka, reader.split(self._of)[0])[self._of]
        first = self._offset if until is None else low
        before, after = {self._of: (first, self._offset)}, {self._of: (self._offset + 1, high)}
        earlier, later = (
            [self._moment(row) for row in reader.read_all(self._kafka, rows) if row.key == self._key and row.value]
            for rows in (before, after)
        )
        found = [one for one in (*earlier, self.newest, *later) if one is not None]
        # At its begin all shards are at the same positions, and so were those before a split.
        found.insert(0, found[0]._replace(shards=(found[0].ends,) * self.shards))
        if until is None:
            return found
        return [one for one in found if all(end <= until.get(p, 0) for p, end in one.ends.items())]


def key(shard: int) -> bytes:
    """Return the key of the positions row of a shard, or of the combiner, which has the number after the last."""
    return b'["positions",%d]' % shard
