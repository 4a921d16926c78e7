"""What a table keeps beside its state, by differences, against a table that is made of the same state."""

from __future__ import annotations

from copy import copy
from typing import Any

from tallystream_aggregator.table import Table, pack, unpack
from tallystream_aggregator.table.lives import SHORT_FORM_LIFE, _InstanceLives
from tallystream_aggregator.table.metrics import _terms
from tallystream_aggregator.table.state import Life


def require_as_new(table: Table) -> None:
    """Require that a table keeps what a new one of its state keeps. Its outputs were taken a moment ago."""
    assert _kept(table) == _kept(Table(unpack(pack(table.state)), table.settings))
    _require_nothing_left(table)
    _require_due(table)


def _kept(table: Table) -> dict[str, Any]:
    """Return the sums, the sizes, and the indexes of lives and metrics."""
    state, rows = table.state, table._rows
    lives, sums = rows.lives, rows.sums
    indexes: dict[Any, Any] = {}
    for instance in [*state.lives]:
        index = lives._indexes.get(instance) or _InstanceLives(state.lives[instance].values())
        for app, of_app in index.apps.items():
            own = copy(of_app)  # what is found again is not kept
            filled = {name for name, life in own.filled.items() if not life.is_empty}
            indexes[instance, app] = own.living, own.newest_seq(), own.state(), {*own.lives}, filled
        indexes[instance] = {*index.living}
    return {
        "sums": {sums.numbers.identity(sums.numbers.of(n)): sums[n].stored() for n in state.metrics},
        "sizes": rows.size._used,
        "numbers of lives": lives.counts(),
        "instances with living lives": +lives._living,
        "living lives of apps": +lives.instances.living,
        "instances": {app: +states for app, states in lives.instances._states.items() if +states},
        "lives of instances": indexes,
        "holders": {
            (partition, number): {
                one.id for item in items for one in ([item] if isinstance(item, Life) else item.lives)
            }
            for partition, of_partition in rows.holders._partitions.items()
            for number, items in of_partition.items()
        },
        "baselines": +rows._baselines,
        "numbers of metrics": rows.metrics._numbers,
        "unused": rows.metrics.unused,
    }


def _require_nothing_left(table: Table) -> None:
    """Require that the table keeps nothing of metrics and instances that are gone."""
    listed, rows = table.state.metrics, table._rows
    numbers, divided = rows.sums.numbers, rows.metrics._divided
    of = {numbers.of(number) for number in listed}
    assert rows.sums._partials.keys() == listed.keys() | of
    if numbers.are_shared:
        assert numbers._sums.keys() == listed.keys() | of
        assert numbers._metrics.keys() == numbers._identities.keys() == {*numbers._numbers.values()} == of
    for name, terms in divided.items():
        assert terms == {
            term: {n for n, metric in listed.items() if metric[1] == name and term in _terms(metric)} for term in terms
        }
        assert {term for metric in listed.values() if metric[1] == name for term in _terms(metric)} == terms.keys()
    assert not rows.metrics.unused
    assert all(table.state.lives.values())


def _require_due(table: Table) -> None:
    """Require that each life is noticed when it falls silent or is forgotten, and that no living one is past that."""
    lives, clocks = table._rows.lives, table.state.clocks
    for life in lives:
        assert not life.living or clocks[life.partition] < life.deadline_ms
        for deadlines, is_due in ((lives._silence, life.living), (lives._forgetting, life.life != SHORT_FORM_LIFE)):
            known = [due for due, _, one in deadlines.heaps.get(life.partition, ()) if one is life]
            assert not is_due or min(known) <= deadlines._due_ms(life)
