"""What a client does that asks for a group's offsets while the group moves: `python -m benchmarks.lag_coordinator`.

The broker is librdkafka's mock cluster. It answers the request with each error of a coordinator, once. A process of its
own asks, as the lag collector does, so that its end can be told.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from pathlib import Path

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka.admin import AdminClient

OFFSET_FETCH = 9
ERRORS = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR)


def ask(servers: str) -> None:
    """Ask for the offsets of a group."""
    admin = AdminClient({"bootstrap.servers": servers})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")], request_timeout=5).values()
    answer.exception()


def mock_cluster(error: int) -> str:
    """Start a mock cluster that answers the first request for offsets with the error; return its address."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka-*"))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    message = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    client = ctypes.c_void_p(library.rd_kafka_new(0, conf, message, ctypes.c_size_t(len(message))))
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, 1))
    errors = (ctypes.c_int * 1)(error)
    library.rd_kafka_mock_push_request_errors_array(cluster, ctypes.c_int16(OFFSET_FETCH), ctypes.c_size_t(1), errors)
    return str(library.rd_kafka_mock_cluster_bootstraps(cluster).decode())


def main() -> None:
    """Print the exit code of the process that asks: that of a signal is negative."""
    spawn = multiprocessing.get_context("spawn")
    print("librdkafka", confluent_kafka.libversion()[0])
    for error in ERRORS:
        asking = spawn.Process(target=ask, args=(mock_cluster(error),))
        asking.start()
        asking.join()
        print(f"{KafkaError(error).name():29} {asking.exitcode:4}")


if __name__ == "__main__":
    main()
