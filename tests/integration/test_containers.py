"""compose.yaml without a Docker engine: the environments of its images, and its services as plain processes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import urllib.request
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from support import images
from support.commands import uv
from support.compose_services import Kafka, ServiceRunner, own_python
from support.health import ask
from support.stores import influx_bucket
from support.wait import wait_until
from tallystream_aggregator.sinks.stores import open_reader
from tallystream_cli.influx_tokens import create_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.stores import Influx
    from tallystream_aggregator.sinks.stores import StoreSettings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

LIMIT_S = 300.0


@pytest.fixture(scope="module")
def page_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the packages of page.Dockerfile, with the hashes of its locks."""
    folder = tmp_path_factory.mktemp("page-image") / "tallystream"
    uv("venv", "-q", "--python", sys.executable, folder)
    python, locks = folder / "bin" / "python", images.COMPOSE / "images"
    for lock in ("build.lock", "page.lock"):
        uv("pip", "install", "-q", "--python", python, "--require-hashes", "--no-build-isolation", "-r", locks / lock)
    ours = [images.ROOT / name for name in ("reporter", "aggregator", "dashboards", "compose")]
    uv("pip", "install", "-q", "--python", python, "--no-deps", "--no-build-isolation", *ours)
    return python


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("env")
    images.init_env(folder)
    return dict(images.resolved(folder / ".env")["services"])


@pytest.fixture
def kafka(services: dict[str, Any], tmp_path: Path) -> Iterator[Kafka]:
    running = Kafka(services["kafka"], tmp_path / "kafka")
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def store(influxdb: Influx) -> Iterator[StoreSettings]:
    with influx_bucket(influxdb, f"test {uuid.uuid4().hex}") as settings:
        yield settings


def test_the_environment_of_the_page_is_complete_without_spark(page_python: Path) -> None:
    """Every dependency is installed. A command that needs PySpark ends with an error and exit code 2."""
    done = subprocess.run([page_python, "-c", "import pyspark"], capture_output=True, check=False, timeout=60)
    assert done.returncode != 0
    uv("pip", "check", "-q", "--python", page_python)
    done = subprocess.run(
        [page_python.with_name("tallystream"), "aggregate", "--checkpoint", "/nonexistent"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("pyspark: 'not installed' can't be used; install it with tallystream-cli[spark]")


def test_promtool_accepts_the_configuration(services: dict[str, Any], tmp_path: Path) -> None:
    """Prometheus' own check finds no error in the configuration and in the mounted rules."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool: install Debian's package prometheus")
    text = (images.COMPOSE / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8")
    for one in services["prometheus"]["volumes"]:
        if one["type"] == "bind":
            text = text.replace(one["target"], one["source"])
    (tmp_path / "prometheus.yaml").write_text(text, encoding="utf-8")
    command = [promtool, "check", "config", tmp_path / "prometheus.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.search(r"SUCCESS: \d+ rules found", done.stdout)


def test_the_services_start_work_and_stop(
    services: dict[str, Any], kafka: Kafka, store: StoreSettings, page_python: Path, tmp_path: Path
) -> None:
    """Each becomes healthy by its own check, the demo's flights are stored, and all exit with code 0 on SIGTERM.

    They write only to their volumes and /tmp, so a read-only file system is enough. InfluxDB's tokens have least
    privilege.
    """
    addresses = {
        "kafka:19092": f"127.0.0.1:{kafka.ports['19092']}",
        "http://influxdb:8086": store.where,
        "0.0.0.0": "127.0.0.1",
        "/run/influxdb": str(tmp_path / "tokens"),
    }
    create_tokens(store, tmp_path / "tokens")
    for name in ("shipper", "lag", "page"):
        services[name]["environment"] |= {
            "INFLUXDB_ORG": store.org,
            "INFLUXDB_BUCKET": store.bucket,
            "INFLUXDB_TOKEN_FILE": f"/run/influxdb/{name}/token",  # one folder here, a volume for each in Compose
        }
    runner = ServiceRunner(tmp_path, addresses, {"spark": own_python(), "page": page_python})

    def answers() -> bool:
        assert kafka.process.poll() is None, kafka.log.read_text()
        try:
            address = f"127.0.0.1:{kafka.ports['9092']}"  # the listener for applications on the machine
            return bool(AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    wait_until(answers, LIMIT_S, "Kafka answers")
    with runner.run(services, "aggregator", "shipper", "lag", "page", "sums") as running:
        runner.pythons = {"page": own_python()}  # the demo also needs its data set
        with runner.run(services, "demo-generator") as feeding, ExitStack() as applications:
            feeding["demo-generator"].wait_healthy(LIMIT_S)
            applications.enter_context(runner.run(services, "demo-app-1", "demo-app-2"))
            for name in ("page", "lag", "sums", "aggregator", "shipper"):
                running[name].wait_healthy(LIMIT_S)
            reader = open_reader(store)
            wanted = {"flights.processed", "instance:flights.processed", "tallystream.lag.groups"}
            wait_until(lambda: wanted <= set(reader.measurements()), LIMIT_S, "sums and lag are in the store")
            reader.close()
            scraped = f"http://127.0.0.1:{running['sums'].port('9464')}/metrics"
            wait_until(
                lambda: "\nflights_processed_total{" in ask(scraped)[1], LIMIT_S, "Prometheus can scrape the sum"
            )
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{running['page'].port('8501')}", timeout=5)
    for one in running.values():
        assert not list(one.home.iterdir()), one.name
        assert not list(one.work.iterdir()), one.name
