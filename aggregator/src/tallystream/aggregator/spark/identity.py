"""Which topic a checkpoint is of: Kafka's ID for it, in a file beside the checkpoint.

A topic that was deleted and created anew has the same name and other records. Where it has as many as the old one had,
Spark reads on in the middle of it and says nothing; the ID tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class TopicIdentity:
    """Remembers the ID of `topic` for `checkpoint`; `timeout` is in seconds."""

    def __init__(self, checkpoint: Path, topic: str, kafka: Mapping[str, str], *, timeout: float = 10.0) -> None:
        self._path = checkpoint.with_name(checkpoint.name + ".topic")
        self._topic = topic
        self._timeout = timeout
        self._admin = AdminClient(dict(kafka))

    def note(self) -> None:
        """Remember the topic as it is now: a table begins.

        Raises:
            KafkaException: the broker did not answer.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(self._id() + "\n", encoding="utf-8")

    def check(self) -> None:
        """Compare with what is remembered; a checkpoint that remembers nothing takes the topic as it is.

        Raises:
            TallystreamError: it is another topic of the same name.
            KafkaException: the broker did not answer.
        """
        if not self._path.exists():
            self.note()
            return
        ours, now = self._path.read_text(encoding="utf-8").strip(), self._id()
        if now != ours:
            raise TallystreamError(
                f"topic {self._topic}: it was deleted and created anew (ID {now}, the checkpoint is of {ours}), so its "
                "offsets mean other records: begin a new table with a new --checkpoint and --from earliest."
            )

    def _id(self) -> str:
        described = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=self._timeout)
        return str(described[self._topic].result().topic_id)
