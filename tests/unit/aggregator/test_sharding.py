"""The sharding of a table: chosen once, stored beside the checkpoint, and not changed by an option."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.undecodable import UNDECODABLE
from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.initial_state import InitialState, initial_state_path, write_initial_state
from tallystream_aggregator.sharding import Sharding, require_sharding, sharding_of, sharding_path, write_sharding
from tallystream_aggregator.table.sum_tags import SumTags

if TYPE_CHECKING:
    from pathlib import Path


def test_a_new_table_has_one_shard_by_default(tmp_path: Path) -> None:
    """The default number of partitions is that of the shards."""
    assert sharding_of(tmp_path / "a", None, None) == Sharding(1, 1)
    assert sharding_of(tmp_path / "b", 4, None) == Sharding(4, 4)
    assert sharding_of(tmp_path / "c", 4, 2) == Sharding(4, 2)


def test_an_existing_table_keeps_its_sharding(tmp_path: Path) -> None:
    """Its next start needs no option. Another number is rejected with a remedy, also with an initial state."""
    begun, restored = tmp_path / "begun", tmp_path / "restored"
    for checkpoint in (begun, restored):
        write_sharding(checkpoint, sharding_of(checkpoint, 4, 2))
    (begun / "offsets").mkdir(parents=True)
    initial_state_path(restored).touch()
    for checkpoint in (begun, restored):
        wanted = Sharding(4, 2, restored=checkpoint == restored)
        assert sharding_of(checkpoint, None, None) == sharding_of(checkpoint, 4, 2) == wanted
        with pytest.raises(ConfigError, match=r"--shards.*8.*has 4: leave the option out, or run tallystream rebuild"):
            sharding_of(checkpoint, 8, None)
        with pytest.raises(ConfigError, match=r"--state-partitions.*1.*has 2"):
            sharding_of(checkpoint, None, 1)


@pytest.mark.parametrize(
    ("stored", "given", "error"),
    [
        (SumTags(), SumTags(drop=("pod",)), r"--drop-tag: 'pod' .*has all tags: leave the option out, or run tally"),
        (SumTags(drop=("pod",)), SumTags(drop=("host", "pod")), r"--drop-tag: 'host,pod' .*has --drop-tag pod: leave"),
        (SumTags(drop=("pod",)), SumTags(keep=("topic",)), r"--keep-tags: 'topic' .*has --drop-tag pod: leave the opt"),
        (SumTags(keep=("a", "b")), SumTags(keep=("a",)), r"--keep-tags: 'a' .*has --keep-tags a,b: leave the option"),
    ],
)
def test_an_existing_table_keeps_the_tags_of_its_sums(
    tmp_path: Path, stored: SumTags, given: SumTags, error: str
) -> None:
    """Its next start needs no option. Other tags are rejected; the error has both values and the remedy."""
    checkpoint = tmp_path / "a"
    write_sharding(checkpoint, sharding_of(checkpoint, 2, 2, stored))
    (checkpoint / "offsets").mkdir(parents=True)
    assert sharding_of(checkpoint, None, None).sum_tags == stored
    assert sharding_of(checkpoint, 2, 2, stored).sum_tags == stored
    with pytest.raises(ConfigError, match=error):
        sharding_of(checkpoint, None, None, given)


def test_a_table_without_stored_tags_has_all_of_them(tmp_path: Path) -> None:
    """An earlier version wrote the file without them."""
    checkpoint = tmp_path / "a"
    sharding_path(checkpoint).write_text('{"shards":2,"partitions":2,"restored":false}')
    (checkpoint / "offsets").mkdir(parents=True)
    assert sharding_of(checkpoint, None, None) == Sharding(2, 2)


def test_a_table_that_began_with_an_initial_state_needs_it(tmp_path: Path) -> None:
    """A shard without a record yet would begin empty, and its sums would decrease."""
    checkpoint = tmp_path / "a"
    write_initial_state(initial_state_path(checkpoint), InitialState([b"", b""], {}, 1))
    write_sharding(checkpoint, Sharding(2, 2))  # as a rebuild does
    write_sharding(checkpoint, sharding_of(checkpoint, None, None))  # as the first start does
    (checkpoint / "offsets").mkdir(parents=True)
    assert sharding_of(checkpoint, 2, 2).shards == 2
    initial_state_path(checkpoint).unlink()
    with pytest.raises(ConfigError, match=r"--checkpoint.*a\.initial-state.* is missing.*restore"):
        sharding_of(checkpoint, None, None)


def test_a_deleted_initial_state_does_not_matter_for_a_new_table(tmp_path: Path) -> None:
    """The table had not begun."""
    checkpoint = tmp_path / "a"
    write_initial_state(initial_state_path(checkpoint), InitialState([b"", b""], {}, 1))
    write_sharding(checkpoint, sharding_of(checkpoint, 2, 2))
    initial_state_path(checkpoint).unlink()
    assert sharding_of(checkpoint, None, None) == Sharding()


def test_reading_the_sharding_writes_nothing(tmp_path: Path) -> None:
    """An aggregator that stands by with other options does not change the file of the active one."""
    checkpoint = tmp_path / "a"
    write_sharding(checkpoint, sharding_of(checkpoint, 4, 2))
    written = sharding_path(checkpoint).read_bytes()
    assert sharding_of(checkpoint, 8, None) == Sharding(8, 8)  # the table has not begun
    assert sharding_path(checkpoint).read_bytes() == written
    (checkpoint / "offsets").mkdir(parents=True)
    assert sharding_of(checkpoint, None, None) == Sharding(4, 2)
    with pytest.raises(ConfigError, match=r"--shards.*8.*has 4"):
        sharding_of(checkpoint, 8, None)


def test_a_checkpoint_without_the_file_has_one_shard(tmp_path: Path) -> None:
    """The table has begun."""
    (tmp_path / "old" / "offsets").mkdir(parents=True)
    assert sharding_of(tmp_path / "old", None, None) == Sharding()
    with pytest.raises(ConfigError, match="has 1"):
        sharding_of(tmp_path / "old", 2, None)


def test_the_sharding_of_a_deleted_checkpoint_is_ignored(tmp_path: Path) -> None:
    """There is neither a table nor an initial state."""
    write_sharding(tmp_path / "lost", sharding_of(tmp_path / "lost", 4, None))
    assert sharding_of(tmp_path / "lost", 2, None) == Sharding(2, 2)


@pytest.mark.parametrize("damaged", UNDECODABLE.values(), ids=UNDECODABLE)
def test_a_damaged_file_is_an_error(tmp_path: Path, damaged: bytes) -> None:
    """The error names the file, so no table is read with a wrong sharding."""
    write_sharding(tmp_path / "a", Sharding(2, 2))
    (tmp_path / "a" / "offsets").mkdir(parents=True)
    sharding_path(tmp_path / "a").write_bytes(damaged)
    with pytest.raises(TallystreamError, match=r"a\.sharding can't be read"):
        sharding_of(tmp_path / "a", None, None)


@pytest.mark.parametrize(("shards", "partitions"), [(0, None), (1025, None), (None, 0), (2, 3)])
def test_a_number_out_of_range_is_rejected(shards: int | None, partitions: int | None) -> None:
    """The error names the option."""
    with pytest.raises(ConfigError, match=r"--shards|--partitions"):
        require_sharding(shards, partitions, option="--partitions")
