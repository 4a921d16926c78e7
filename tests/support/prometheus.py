"""A real Prometheus from Debian that scrapes at most one address, every second, and its query API."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tallystream_cli.servers.process import Server, free_port

_CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: tallystream
    honor_labels: true
    static_configs: [{{targets: ["{target}"]}}]
"""


def missing() -> str | None:
    """Return why Prometheus can't be started, None if it can."""
    return None if shutil.which("prometheus") else "there is no Prometheus: install Debian's prometheus"


class Prometheus(Server):
    """One server. `target` is the HOST:PORT whose /metrics it scrapes; empty if there is none."""

    def __init__(self, folder: Path, target: str = "") -> None:
        super().__init__("prometheus", folder / "prometheus.log")
        self._folder, self._target = folder, target
        self.url = f"http://127.0.0.1:{free_port()}"

    def begin(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "prometheus.yml"
        config.write_text(_CONFIG.format(target=self._target) if self._target else "{}")
        self._spawn(
            [
                *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={self._folder / 'data'}"),
                f"--web.listen-address={self.url.removeprefix('http://')}",
                "--storage.tsdb.retention.time=10y",
            ]
        )

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the current result of an expression: the labels and the value of each series."""
        result = self._get("/api/v1/query", query=expression)
        return [(one["metric"], float(one["value"][1])) for one in result["result"]]

    def target(self) -> tuple[str, str]:
        """Return the health of the target, up, down or unknown, and its last error."""
        for one in self._get("/api/v1/targets", state="active")["activeTargets"]:
            return one["health"], one["lastError"]
        return "unknown", ""

    def _get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=10) as response:
            return json.load(response)["data"]
