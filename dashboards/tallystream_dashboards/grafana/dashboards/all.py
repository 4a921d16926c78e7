"""Every dashboard, in the order in which they lead to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream_dashboards.grafana.dashboards import instances, lag, metric, overview, pipeline

if TYPE_CHECKING:
    from tallystream_dashboards.grafana.settings import Settings

BOARDS = (overview.BOARD, metric.BOARD, instances.BOARD, lag.BOARD, pipeline.BOARD)
BY_NAME = {board.name: board for board in BOARDS}


def dashboards(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the JSON of the dashboards that the flavour has, by uid."""
    had = [board for board in BOARDS if board.has(settings.flavour)]
    return {settings.uid(board.name): board.model(settings, had) for board in had}
