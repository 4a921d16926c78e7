"""Which topics a checkpoint is of: Kafka's IDs for them, in a file beside the checkpoint.

A topic that was deleted and created anew has the same name and other records. Where it has as many as the old one had,
Spark reads on in the middle of it and says nothing; the ID tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicCollection

from tallystream.errors import TallystreamError
from tallystream_aggregator import files
from tallystream_aggregator.kafka import clients

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


class TopicIdentity:
    """Remembers the IDs of topics for `checkpoint`, a line each: ID and name; `timeout` is in seconds."""

    def __init__(self, checkpoint: Path, kafka: Mapping[str, str], *, timeout: float = 10.0) -> None:
        self._path = checkpoint.with_name(checkpoint.name + ".topic")
        self._timeout = timeout
        self._admin = clients.admin(kafka)

    def note(self, topics: Iterable[str]) -> None:
        """Remember the topics as they are now, and no others: a table begins.

        Raises:
            KafkaException: the broker did not answer.
        """
        self._write(self._ids(topics))

    def check(self, topics: Iterable[str]) -> list[str]:
        """Compare with what is remembered; return the topics that were not, and are from now on, as they are.

        Raises:
            TallystreamError: one is another topic of the same name.
            KafkaException: the broker did not answer.
        """
        names = sorted(topics)
        remembered, now = self._read(names), self._ids(names)
        for topic in remembered.keys() & now.keys():
            if now[topic] != remembered[topic]:
                raise TallystreamError(
                    f"topic {topic}: it was deleted and created anew (ID {now[topic]}, the checkpoint is of "
                    f"{remembered[topic]}), so its offsets mean other records: begin a new table with a new "
                    "--checkpoint and --from earliest."
                )
        new = sorted(now.keys() - remembered.keys())
        if new:
            self._write(now | remembered)
        return new

    def _read(self, names: list[str]) -> dict[str, str]:
        if not self._path.exists():
            return {}
        lines = [line.split() for line in self._path.read_text(encoding="utf-8").splitlines()]
        # A line without a name is of a table that read the one topic there was.
        return {words[1] if len(words) > 1 else names[0]: words[0] for words in lines if words}

    def _write(self, ids: Mapping[str, str]) -> None:
        files.write_file(self._path, "".join(f"{id_} {topic}\n" for topic, id_ in sorted(ids.items())).encode())

    def _ids(self, topics: Iterable[str]) -> dict[str, str]:
        described = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout)
        return {topic: str(found.result().topic_id) for topic, found in described.items()}
