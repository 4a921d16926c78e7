"""A real Carbon with Whisper files, from Debian, and the values in its files."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from support.wait import wait_until
from tallystream_aggregator.sinks.graphite import EMPTY
from tallystream_cli.servers.process import Server, free_port, spawn, tail

CARBON = "/usr/bin/carbon-cache"
PYTHON = "/usr/bin/python3"
"""Debian's Python, which has the packages carbon and whisper."""

_CONFIG = """
[cache]
STORAGE_DIR = {folder}
LOCAL_DATA_DIR = {folder}/whisper
CONF_DIR = {folder}
LOG_DIR = {folder}
PID_DIR = {folder}
USER =
LINE_RECEIVER_INTERFACE = 127.0.0.1
LINE_RECEIVER_PORT = {port}
PICKLE_RECEIVER_PORT = 0
CACHE_QUERY_INTERFACE = 127.0.0.1
CACHE_QUERY_PORT = {query_port}
MAX_CACHE_SIZE = inf
MAX_UPDATES_PER_SECOND = inf
MAX_CREATES_PER_MINUTE = inf
WHISPER_SPARSE_CREATE = True
ENABLE_TAGS = False
LOG_CREATES = True
CARBON_METRIC_INTERVAL = 0
"""
_SCHEMAS = "[all]\npattern = .*\nretentions = 1s:2h\n"

# Prints each path that the log says was created, with the points of its file: [path, [[second, value], ...]].
_DUMP = """
import json, os, re, sys, time
import whisper
from carbon.util import TaggedSeries
folder = sys.argv[1]
log = os.path.join(folder, "out.log")
lines = open(log, encoding="utf-8") if os.path.exists(log) else ()
paths = [m.group(1) for m in (re.search(r"creating database metric (.*) \\(archive=", line) for line in lines) if m]
now, found = int(time.time()), []
for path in dict.fromkeys(paths):
    file = os.path.join(folder, "whisper", TaggedSeries.encode(path, sep=os.sep, hash_only=True) + ".wsp")
    (start, end, step), values = whisper.fetch(file, now - 7199, now)
    found.append([path, [[start + i * step, v] for i, v in enumerate(values) if v is not None]])
json.dump(found, sys.stdout)
"""

Series = tuple[str, tuple[tuple[str, str], ...]]


def decode(stored: str) -> str:
    """Return the original text: the inverse of `encode_value` and `encode_path`."""
    return "" if stored == EMPTY else unquote(stored)


def missing() -> str | None:
    """Return why Carbon can't be started, None if it can."""
    if Path(CARBON).exists() and not subprocess.run([PYTHON, "-c", "import whisper"], check=False).returncode:
        return None
    return "there is no Carbon: install Debian's graphite-carbon and python3-whisper"


class Carbon(Server):
    """A carbon-cache that keeps points for two hours with a resolution of 1 s. A restart keeps its port.

    A stop and a kill lose the points of the last second.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "out.log", stop_timeout_s=60)
        self._folder = folder
        self.port = free_port()

    def start(self) -> Self:
        """Start it and wait until it listens."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = _CONFIG.format(folder=self._folder, port=self.port, query_port=free_port())
        (self._folder / "carbon.conf").write_text(config)
        (self._folder / "storage-schemas.conf").write_text(_SCHEMAS)
        pid_file = self._folder / "carbon.pid"
        pid_file.unlink(missing_ok=True)
        command = [CARBON, f"--config={self._folder / 'carbon.conf'}", f"--pidfile={pid_file}"]
        # Debian's twistd must not use this environment.
        self._process = spawn(
            [PYTHON, *command, f"--logdir={self._folder}", "--nodaemon", "start"],
            self.log,
            {"PYTHONPATH": None, "VIRTUAL_ENV": None},
        )
        wait_until(self._listens, 60, "Carbon listens")
        return self

    def _listens(self) -> bool:
        assert self.pid is not None, tail(self.log)
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def paths(self) -> dict[str, dict[int, float]]:
        """Return the values in the files: path → second → value."""
        done = subprocess.run([PYTHON, "-c", _DUMP, str(self._folder)], capture_output=True, check=True, text=True)
        return {path: dict(points) for path, points in json.loads(done.stdout)}

    def content(self, prefix: str = "") -> dict[Series, dict[int, dict[str, float]]]:
        """Return the fields of the paths under the prefix: measurement and tags → second → field → value."""
        found: dict[Series, dict[int, dict[str, float]]] = {}
        for path, points in self.paths().items():
            name, *tags = path.split(";")
            if not name.startswith(prefix):
                continue
            measurement, _, field = name.removeprefix(prefix).rpartition(".")
            pairs = (tag.partition("=") for tag in tags)
            key = (decode(measurement), tuple(sorted((decode(k), decode(v)) for k, _, v in pairs)))
            for second, value in points.items():
                found.setdefault(key, {}).setdefault(second, {})[decode(field)] = value
        return found
