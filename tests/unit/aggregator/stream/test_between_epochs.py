"""The loop of a shard between two epochs."""

from __future__ import annotations

from support.simulation.direct import METRICS, Direct


def test_steps_between_epochs_are_published_and_stored_by_the_next_one() -> None:
    """They are reported as the next epoch's, which does not begin again."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.feed(1, 2)
    loop.run_between(direct.after(2))
    assert direct.published() == {METRICS: 2}
    report = loop.run_epoch(direct.store, (1, 1), 1)
    assert (report.records, report.restarts, round(report.seconds)) == (2, 0, 3)
    direct.cluster.partition(METRICS).delete_before(2)
    report = direct.loop().run_epoch(direct.store, (1, 2), 1)  # the state has them
    assert (report.records, report.restarts) == (0, 1)


def test_a_loop_does_not_go_on_after_a_stop() -> None:
    """The stored state is the last thing that a stopped loop does."""
    direct = Direct()
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    direct.stopped = True
    direct.feed(1)
    loop.run_between(direct.after(30))
    assert direct.published() == {METRICS: 0}
