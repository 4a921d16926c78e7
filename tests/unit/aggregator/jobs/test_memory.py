"""Whether the memory suffices for the table."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import yaml

from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.aggregate.memory import available_bytes, parse_memory, warn_of_memory
from tallystream_aggregator.jobs.aggregate.settings import AggregateSettings

GIB, ROOT = 1 << 30, Path(__file__).parents[4]


@pytest.mark.parametrize(("text", "size"), [("800m", 800 << 20), ("2g", 2 << 30), ("1Gb", GIB), ("512", 512)])
def test_an_amount_of_memory_has_the_units_of_spark(text: str, size: int) -> None:
    """A number without a unit is in bytes."""
    assert parse_memory("--table-memory", text) == size


@pytest.mark.parametrize("text", ["", "-1g", "1.5g", "much", "1gib"])
def test_anything_else_is_rejected_with_the_name_of_the_option(text: str) -> None:
    """The message has the remedy."""
    with pytest.raises(ConfigError, match=r"--table-memory.*as in 800m or 2g"):
        parse_memory("--table-memory", text)


def test_the_containers_of_compose_and_kubernetes_have_the_memory_of_the_defaults(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """So an aggregator that is as large as it may be is not killed there."""
    services = yaml.safe_load((ROOT / "compose" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    manifest = (ROOT / "deploy" / "kubernetes" / "base" / "aggregator.yaml").read_text(encoding="utf-8")
    (pod,) = (one["spec"]["template"]["spec"] for one in yaml.safe_load_all(manifest) if one["kind"] == "StatefulSet")
    limits = [
        services["aggregator"]["deploy"]["resources"]["limits"]["memory"],
        pod["containers"][0]["resources"]["limits"]["memory"].removesuffix("i"),
    ]
    with caplog.at_level(logging.WARNING):
        for limit in limits:
            warn_of_memory(AggregateSettings("localhost:9092", Path("checkpoint")), 1, parse_memory("memory", limit))
    assert not caplog.records


def test_a_container_has_the_memory_of_its_limit(tmp_path: Path) -> None:
    """Without a limit, or without cgroups, it is that of the machine."""
    limit, none = tmp_path / "memory.max", tmp_path / "none"
    limit.write_text("12345\n")
    assert available_bytes([none, limit]) == 12_345
    limit.write_text("max\n")
    assert available_bytes([none, limit]) == available_bytes([]) > GIB // 8


@pytest.mark.parametrize(
    ("master", "shards", "gigabytes", "warned"),
    [
        ("local[2]", 1, 4, False),
        ("local[2]", 1, 2, True),
        ("local[4]", 3, 4, True),
        ("spark://host:7077", 3, 2, False),
    ],
)
def test_a_table_that_may_take_more_than_there_is_is_a_warning(
    master: str, shards: int, gigabytes: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the option and both figures. It is no error: most tables take a fraction of it."""
    settings = AggregateSettings("localhost:9092", Path("checkpoint"), master=master)
    with caplog.at_level(logging.WARNING):
        warn_of_memory(settings, shards, gigabytes * GIB)
    assert bool(caplog.records) == warned
    if warned:
        assert "--table-memory" in caplog.text
        assert f"{gigabytes * 1024} MB" in caplog.text
