"""`tallystream verify`: reads the topics and passes their records to `check`, which compares."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import ConfigError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.ledger import otlp_topics, rows
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.times import parse_time_ms
from tallystream_aggregator.verify import reader
from tallystream_aggregator.verify.advance import Advance
from tallystream_aggregator.verify.check import Check, Difference, Outcome
from tallystream_aggregator.verify.ledger import Ledger, Limit
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.positions import Positions
from tallystream_aggregator.verify.published import Moment, PublishedSums, by_partition, event, refused_record
from tallystream_aggregator.verify.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tallystream_aggregator.kafka.ledger import LedgerRow
    from tallystream_aggregator.verify.published import Ends, PartitionName


TIME_HINT = "give a time in UTC as in 2026-11-20T10:00, or ledger:2026-11-20T10:00"
OFFSETS_HINT = 'give the offsets at which the table began, as in {"metrics":{"0":123}}'

Found = TypeVar("Found")

_decode_offsets = json_decoder(dict[str, dict[int, int]])


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """The settings of `tallystream verify`.

    `since` and `to` bound the period: sums of epochs after `since`, up to `to`. `began` has the offsets at which the
    table began, if that was not the beginning of the topic.

    Raises:
        ConfigError: a setting can't be used.
    """

    bootstrap_servers: str
    topic_prefix: str = ""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    since: str | None = None
    to: str | None = None
    began: str | None = None
    rules: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.rules.max_app_metrics < 1:
            raise ConfigError("--max-app-metrics", self.rules.max_app_metrics, "give a whole number above zero")
        _parse_time("--from", self.since)
        _parse_time("--to", self.to)
        _offsets(self.began)


def run(settings: VerifySettings, *, progress: Callable[[int], None] = lambda _records: None) -> Outcome:
    """Replay `metrics` up to what was published when this began, and return the result of the comparison.

    `progress` is called after every record with the number replayed so far. Nothing is written.

    Raises:
        ConfigError: the start of the table is unknown or its records were deleted, or there is nothing to compare.
        TallystreamError: the broker can't be reached, or records were deleted while they were read.
    """
    with clients.broker_errors(settings.bootstrap_servers):
        return _run(settings, progress)


def _run(settings: VerifySettings, progress: Callable[[int], None]) -> Outcome:
    topics = Topics(settings.topic_prefix)
    kafka = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    check_login(kafka)
    rows = _ledger_rows(kafka, topics)
    rules = replace(settings.rules, otlp_topics=otlp_topics_of(settings.rules.otlp_topics, rows))
    published = Positions(kafka, topics)
    known = set(published.newest.ends)
    names = sorted({reader.split(partition)[0] for partition in known})
    ranges = reader.bounds(kafka, *names, committed=False)
    since, to = (
        _limit(option, text, kafka, names) for option, text in (("--from", settings.since), ("--to", settings.to))
    )
    ledger = Ledger(rows, to=to, since=since)
    begin = _begin(settings, ranges, ledger.opened, kafka, known)
    end: Moment | None = published.newest
    if to is not None:
        if ledger.end is None:
            raise ConfigError("--to", settings.to, f"{topics.ledger} has no epoch that had begun by then")
        # The shards end an epoch at different positions.
        end = Moment((ledger.end,), ledger.end_tags) if published.shards == 1 else None
    last = published.newest.ends if to is None else ledger.end or {}
    sums = PublishedSums(end=last, begin=None if since is None else ledger.begin or {})
    for raw in reader.read_all(kafka, reader.settled(kafka, topics.agg)):
        sums.add(raw.key, raw.value)
    if not sums.newest:
        raise ConfigError("--topic-prefix", settings.topic_prefix, f"{topics.agg} has no sum of that period")
    letters, events = _counted(kafka, topics.dead, refused_record), _counted(kafka, topics.events, event)
    beyond = published.wait(sums.later)
    readers = {partition: reader.Reader(kafka, partition, begin[partition], committed=False) for partition in ranges}
    try:
        replay = Replay(rules, published.newest.tags)
        advance = Advance(
            replay,
            begin,
            lambda partition, end: readers[partition].until(end) if partition in readers else (),
            ledger.changes,
            progress,
        )
        check = Check(advance, replay, letters=letters, events=events, tags=ledger.tags)
        moments = None
        if published.shards > 1:
            moments = published.moments(None if since is None and to is None else last)
        outcome = check.run(sums.to_compare(), sums.newest, sums.later, end=end, moments=moments)
    finally:
        for one in readers.values():
            one.close()
    outcome.unreadable = sums.unreadable
    outcome.differences += [
        Difference(row.identity, "offsets", row.fields["offsets"], "those of a step", row.ends) for row in beyond
    ]
    return outcome


def _ledger_rows(kafka: Mapping[str, str], topics: Topics) -> list[LedgerRow]:
    return list(rows(raw.value for raw in reader.read_all(kafka, reader.bounds(kafka, topics.ledger))))


def otlp_topics_of(given: tuple[str, ...], last: Sequence[LedgerRow]) -> tuple[str, ...]:
    """Return the topics of OTLP metrics: those of the last epoch in the ledger, or the `given` ones if it has none.

    Raises:
        ConfigError: a topic was given that the table does not read as OTLP metrics.
    """
    found = otlp_topics(last)
    if found is None:
        return given
    wrong = sorted(set(given) - set(found))
    if wrong:
        read = f"OTLP metrics from {', '.join(found)}" if found else "no OTLP metrics"
        remedy = f"the ledger says that the aggregator reads {read}: leave the option out"
        raise ConfigError("--otlp-topic", ", ".join(wrong), remedy)
    return tuple(found)


def _counted(
    kafka: Mapping[str, str], topic: str, read: Callable[[bytes | None], Found | None]
) -> Counter[Found] | None:
    """Return how often each record of a topic is there, None if it is missing or retention deleted some of it."""
    ranges = reader.settled(kafka, topic)
    if not ranges or any(low > 0 for low, _ in ranges.values()):
        return None
    return Counter(found for raw in reader.read_all(kafka, ranges) if (found := read(raw.value)) is not None)


def _begin(
    settings: VerifySettings,
    ranges: Mapping[PartitionName, tuple[int, int]],
    opened: LedgerRow | None,
    kafka: Mapping[str, str],
    known: set[PartitionName],
) -> Ends:
    """Return the offsets at which the table began. The table reads the partitions in `known`.

    Raises:
        ConfigError: the offsets are unknown, or records after them were deleted.
    """
    start = None if settings.began is None else by_partition(_offsets(settings.began))
    if start is not None and not (start and start.keys() <= ranges.keys()):
        raise ConfigError("--began", settings.began, f"the table has the partitions {sorted(ranges)}: {OFFSETS_HINT}")
    if start is None and opened is not None:
        start = by_partition(opened.start)
    began = dict.fromkeys(ranges, 0) | (start or {})
    deleted = {
        partition: low for partition, (low, _) in ranges.items() if partition in known and low > began[partition]
    }
    if deleted:
        raise ConfigError(
            "--began",
            settings.began or "earliest",
            f"records that the table has taken were deleted (partition -> first offset left: {deleted}), so its sums "
            "can't be replayed from nothing; the earliest exact start is a table that began at or after "
            f"{_earliest_start(kafka, ranges)}",
        )
    return began


def _earliest_start(kafka: Mapping[str, str], ranges: Mapping[PartitionName, tuple[int, int]]) -> str:
    """Return the append time of the oldest record of each partition, the latest of these."""
    firsts = [next(iter(reader.read_all(kafka, {partition: range_})), None) for partition, range_ in ranges.items()]
    times_ms = [record.timestamp_ms for record in firsts if record is not None]
    return _utc(max(times_ms)) if times_ms else "now"


def _utc(ts_ms: int) -> str:
    return datetime.fromtimestamp(ts_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _limit(option: str, text: str | None, kafka: Mapping[str, str], names: list[str]) -> Limit | None:
    time = _parse_time(option, text)
    if time is None:
        return None
    by_ledger, ts_ms = time
    return Limit(ts_ms, None if by_ledger else reader.at_time(kafka, names, ts_ms))


def _parse_time(option: str, text: str | None) -> tuple[bool, int] | None:
    """Return whether a time is one of the ledger, and the time in epoch ms; None if `text` is None."""
    if text is None:
        return None
    try:
        at_ms = parse_time_ms(text.removeprefix("ledger:"))
    except ValueError as error:
        raise ConfigError(option, text, TIME_HINT) from error
    return text.startswith("ledger:"), at_ms


def _offsets(text: str | None) -> dict[str, dict[int, int]]:
    if text is None:
        return {}
    try:
        return _decode_offsets(text)
    except msgspec.DecodeError as error:
        raise ConfigError("--began", text, OFFSETS_HINT) from error
