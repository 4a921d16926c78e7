"""`monitor()`: watch the streaming queries of a Spark session."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from tallystream.clock import Deadline
from tallystream.config import PREFIX, kafka_options, report
from tallystream.errors import ConfigError
from tallystream.instrumentation.default import default_registry
from tallystream.kafka.group_offsets import GroupOffsets
from tallystream.registry import registry_of
from tallystream.spark.recorder import QueryRecorder
from tallystream.validation import check_name, check_options, is_enabled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.registry import MetricRegistry, Reportable
    from tallystream.spark.query_listener import QueryListener

CHECK_S = 1.0
"""Seconds after which the thread of a monitor that was stopped ends."""

_log = logging.getLogger("tallystream.spark")


def monitor(
    spark: Any,
    app: str,
    *,
    bootstrap_servers: str | None = None,
    instance: str | None = None,
    registry: MetricRegistry | Reportable | None = None,
    options: Mapping[str, Any] | None = None,
    group: str = "spark-{app}-{query}",
    commit_offsets: bool = True,
    source_servers: str | None = None,
    source_options: Mapping[str, Any] | None = None,
) -> Monitor:
    """Report the metrics of all streaming queries of a session, and commit the offsets of their Kafka sources.

    Call it once, before the queries start, or again after `stop()`. The last report is made at the end of the process,
    or by `stop()`. An error of Kafka is logged by the logger `tallystream.spark`, and the queries go on. With
    TALLYSTREAM_ENABLED=0 it does nothing.

    Args:
        spark: the session, classic or of Spark Connect.
        app: the application's name.
        bootstrap_servers: the brokers of the reporter. This and the next two are those of `tallystream.report()`, which
            also reads the TALLYSTREAM_* variables.
        instance: the instance ID of the driver.
        options: the options of librdkafka.
        registry: the registry of the metrics. If it is reported already, as by `tallystream.report()`, it stays so. By
            default it is the default registry.
        group: the consumer group of a query; `{app}` and `{query}`, the query's name or ID, are replaced.
        commit_offsets: whether offsets are committed. Without it, batches that a killed driver did not report are
            missing in the counters.
        source_servers: the brokers that the queries read from, if they are not those of the reporter.
        source_options: the options of librdkafka for these brokers, if they are not `options`.

    Raises:
        ConfigError: an argument can't be used.
    """
    app = check_name("app", app)
    if commit_offsets:
        check_group(group, app)
    if not is_enabled(os.environ):
        return Monitor(spark, None, None)
    servers = bootstrap_servers or os.environ.get(PREFIX + "BOOTSTRAP_SERVERS") or "localhost:9092"
    source = check_options(options) if source_options is None else check_options(source_options, "source_options")
    consumer = {**kafka_options(os.environ), **source, "bootstrap.servers": source_servers or servers}
    reported = default_registry() if registry is None else registry_of(registry)
    is_reported = reported.is_reported and (registry is not None or reported.app == app)
    if not is_reported:
        reported = report(
            app, bootstrap_servers=bootstrap_servers, instance=instance, options=options, registry=registry
        )

    def open_group(query: str) -> GroupOffsets:
        return GroupOffsets(consumer, group.format(app=app, query=query), reported.clock.monotonic)

    recorder = QueryRecorder(reported, reported.reporter, open_group if commit_offsets else None)
    return Monitor(spark, recorder, None if is_reported else reported)


def check_group(group: object, app: str) -> None:
    """Check the name of the groups.

    Raises:
        ConfigError: it is no text, or has other fields than {app} and {query}.
    """
    try:
        if isinstance(group, str) and group.format(app=app, query="query"):
            return
    except (IndexError, KeyError, ValueError, AttributeError):
        pass
    raise ConfigError("group", group, "use a name, in which {app} and {query} are replaced")


class Monitor:
    """What `monitor()` returns. `stop()` ends it."""

    def __init__(self, spark: Any, recorder: QueryRecorder | None, owned: MetricRegistry | None) -> None:
        self._spark, self._recorder, self._owned = spark, recorder, owned
        self._listener: QueryListener | None = None
        self._stopping = threading.Lock()
        if recorder is not None:
            from tallystream.spark.query_listener import QueryListener

            self._listener = QueryListener(recorder)
            spark.streams.addListener(self._listener)
            atexit.register(self.stop)
            # At the end of the process Python first waits for the listener's thread of Spark Connect, which ends only
            # when the listener is removed. Functions of `atexit` are called after that.
            threading.Thread(target=self._stop_after_main, name="tallystream-spark-end", daemon=True).start()

    def stop(self, timeout: float = 10.0) -> bool:
        """Count, report and commit the batches that have finished, and end the monitor.

        Returns whether everything was delivered within `timeout` seconds. The queries go on.
        """
        with self._stopping:
            recorder, self._recorder = self._recorder, None
            if recorder is None:
                return True
            deadline = Deadline(timeout, time.monotonic)
            self._wait_for_ended_queries(recorder, deadline)
            is_done = recorder.stop(deadline.left())
            is_reported = self._owned is None or self._owned.reporter.stop(max(deadline.left(), 1.0))
            atexit.unregister(self.stop)  # last: until then the end of the process waits for it
            return is_reported and is_done

    def _stop_after_main(self) -> None:
        main = threading.main_thread()
        while self._recorder is not None and main.is_alive():
            main.join(CHECK_S)
        self.stop()

    def _wait_for_ended_queries(self, recorder: QueryRecorder, deadline: Deadline) -> None:
        """Wait for what Spark has not passed on of queries that have ended, and remove the listener."""
        try:
            while deadline.left() and recorder.running - {str(query.runId) for query in self._spark.streams.active}:
                time.sleep(0.02)
            self._spark.streams.removeListener(self._listener)
        except Exception:  # noqa: BLE001 - a session that has been stopped has passed on everything
            _log.debug("the listener is not removed: the session has been stopped", exc_info=True)
