"""Carbon restarts between two batches. It is a stub that keeps all lines in memory."""

from __future__ import annotations

import socket
import threading

from support.wait import wait_until
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.graphite import GraphiteSink


class Carbon:
    """A server that reads each connection to its end, and then closes it."""

    def __init__(self, port: int = 0) -> None:
        self.lines: list[str] = []
        self.connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        readers = []
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            self.connections.append(connection)
            readers.append(threading.Thread(target=self._read, args=(connection,)))
            readers[-1].start()
        for reader in readers:
            reader.join()

    def _read(self, connection: socket.socket) -> None:
        with connection, connection.makefile("r") as lines:
            self.lines += [line.strip() for line in lines]

    def open(self) -> int:
        """Return the number of open connections."""
        return sum(one.fileno() >= 0 for one in self.connections)

    def kill(self) -> None:
        """Close all connections and the port."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            if connection.fileno() >= 0:
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()


def _point(n: int) -> Point:
    return Point("orders", {}, {"count": n}, n * 1000)


def _lines(*numbers: int) -> list[str]:
    return [f"orders.count {n} {n}" for n in numbers]


def _ship(sink: GraphiteSink, n: int) -> None:
    sink.write([_point(n)])


def test_the_next_write_repeats_what_a_restarted_carbon_had_in_memory() -> None:
    """No call has failed. Later writes repeat nothing, and one connection stays open for all of them."""
    before = Carbon()
    sink = GraphiteSink("127.0.0.1", before.port)
    sink.setup()
    _ship(sink, 1)
    _ship(sink, 2)
    assert before.lines == _lines(1, 2)
    wait_until(lambda: before.open() == 1, 10, "Carbon has closed the other connections")
    before.kill()
    after = Carbon(before.port)
    _ship(sink, 3)
    _ship(sink, 4)
    assert after.lines == _lines(1, 2, 3, 4)
    sink.close()
    wait_until(lambda: after.open() == 0, 10, "the sink has closed its connections")
    after.kill()
