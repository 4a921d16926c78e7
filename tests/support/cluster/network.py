"""A network between the brokers of a cluster and their clients, which a test can break: proxies on loopback.

Every listener is behind a proxy, whose address the brokers advertise. The proxy knows by the process that owns the
other end of a connection which broker has opened it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Self

import psutil

CHUNK_BYTES = 65_536


class Network:
    """The proxies of a cluster, in a thread of their own.

    Args:
        pids: returns the process ID of each broker that runs, by its number.
    """

    def __init__(self, pids: Callable[[], Mapping[int, int]]) -> None:
        self._pids = pids
        self.cut: set[int] = set()
        self._delay_s: dict[int, float] = {}
        self._clients_too = False
        self._healed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()

    def proxy(self, number: int, port: int) -> int:
        """Listen for a broker, and forward to its port. Return the port of the proxy."""

        async def listen() -> asyncio.Server:
            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with suppress(asyncio.CancelledError), closing(writer):
                    await self._connect(number, port, reader, writer)

            return await asyncio.start_server(accept, "127.0.0.1", 0)

        server = asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def cut_off(self, number: int, *, clients_too: bool = False) -> None:
        """Let nothing pass between a broker and the others, as if cables were cut: connections stay, and are silent."""
        self._healed.clear()
        self._clients_too = clients_too
        self.cut = {number}

    def delay(self, number: int, seconds: float) -> None:
        """Let everything to and from a broker arrive later by so many seconds."""
        self._delay_s = {number: seconds}

    def heal(self) -> None:
        """Let everything pass again at once. What was held back arrives now."""
        self.cut, self._delay_s, self._clients_too = set(), {}, False
        self._loop.call_soon_threadsafe(self._healed.set)

    async def _connect(
        self, number: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        source = await asyncio.to_thread(self._owner, writer.get_extra_info("peername")[1])
        await self._pass(source, number)
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return
        with closing(to_writer):
            await asyncio.gather(
                self._forward(source, number, reader, to_writer), self._forward(source, number, to_reader, writer)
            )

    async def _forward(
        self, source: int | None, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError), closing(writer):
            while data := await reader.read(CHUNK_BYTES):
                await self._pass(source, number)
                writer.write(data)
                await writer.drain()

    async def _pass(self, source: int | None, number: int) -> None:
        """Return when something may pass on a connection from a broker, or a client, to a broker."""
        await asyncio.sleep(max(self._delay_s.get(source or 0, 0), self._delay_s.get(number, 0)))
        while source != number and self.cut & {source, number} and (source is not None or self._clients_too):
            await self._healed.wait()

    def _owner(self, port: int) -> int | None:
        """Return the broker that has opened a connection from a port, None if a client has."""
        for number, pid in self._pids().items():
            with suppress(psutil.Error):
                if any(one.laddr.port == port for one in psutil.Process(pid).net_connections("tcp")):
                    return number
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            await asyncio.sleep(0.1)  # what is just being accepted gets its task
            for server in self._servers:
                server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.1)  # what is closed is closed by a later turn of the loop

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
