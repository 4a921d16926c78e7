"""A real Prometheus from Debian that scrapes one address every second, and is asked over its own API."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, Self

from support.wait import wait_until
from tallystream.compose.servers._process import end, free_port, spawn, tail

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

_CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: tallystream
    honor_labels: true
    static_configs: [{{targets: ["{target}"]}}]
"""


def missing() -> str | None:
    """Return why there can be no Prometheus, None where it can."""
    return None if shutil.which("prometheus") else "there is no Prometheus: install Debian's prometheus"


class Prometheus:
    """One server; `target` is the host:port whose /metrics it scrapes."""

    def __init__(self, folder: Path, target: str) -> None:
        self._folder, self._target = folder, target
        self._url = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "prometheus.yml"
        config.write_text(_CONFIG.format(target=self._target))
        self._process = spawn(
            [
                *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={self._folder / 'data'}"),
                f"--web.listen-address={self._url.removeprefix('http://')}",
            ],
            self._folder / "prometheus.log",
        )
        wait_until(self._ready, 60, "Prometheus is ready")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        end(self._process, patience=30)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, tail(self._folder / "prometheus.log")
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return what an expression is now: the labels and the value of each series."""
        asked = self._get("/api/v1/query", query=expression)
        return [(one["metric"], float(one["value"][1])) for one in asked["result"]]

    def target(self) -> tuple[str, str]:
        """Return the health of the one target, up, down or unknown, and its last error."""
        for one in self._get("/api/v1/targets", state="active")["activeTargets"]:
            return one["health"], one["lastError"]
        return "unknown", ""

    def _get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self._url}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]
