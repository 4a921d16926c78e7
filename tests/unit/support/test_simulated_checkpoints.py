"""The simulated checkpoint shows a task what Spark's state store shows it."""

from __future__ import annotations

import pytest

from support.simulation.checkpoints import BatchTakenError, Checkpoint


def committed(checkpoint: Checkpoint, head: bytes) -> None:
    batch = checkpoint.begin()
    batch.add(1, head * 4)
    batch.set_head(head)
    checkpoint.commit(batch)


def test_a_task_sees_its_own_writes_and_others_see_them_after_the_commit() -> None:
    """An attempt that is not committed is lost. What is written after a commit belongs to no batch."""
    checkpoint = Checkpoint()
    lost, batch = checkpoint.begin(), checkpoint.begin()
    lost.set_head(b"lost")
    batch.add(1, b"entry")
    batch.set_head(b"head")
    assert (batch.head(), batch.entry(1), batch.entry(2)) == (b"head", b"entry", None)
    assert checkpoint.begin().head() is None
    checkpoint.commit(batch)
    batch.set_head(b"later")
    following = checkpoint.begin()
    assert (following.head(), following.entry(1)) == (b"head", b"entry")
    following.clear()
    assert (following.head(), following.entry(1), checkpoint.begin().entry(1)) == (b"head", None, b"entry")


def test_only_the_first_commit_of_a_batch_counts() -> None:
    """Another driver, and one whose checkpoint was lost, are refused."""
    checkpoint = Checkpoint()
    first, second = checkpoint.begin(), checkpoint.begin()
    checkpoint.commit(first)
    with pytest.raises(BatchTakenError):
        checkpoint.commit(second)
    third = checkpoint.begin()
    checkpoint.lose()
    with pytest.raises(BatchTakenError):
        checkpoint.commit(third)


def test_an_old_copy_has_the_state_of_its_time() -> None:
    """Batches that were committed after it are unknown."""
    checkpoint = Checkpoint()
    for head in (b"a", b"b", b"c"):
        committed(checkpoint, head)
    checkpoint.put_back(1)
    assert (checkpoint.begin().head(), checkpoint.begin().number) == (b"a", 1)


@pytest.mark.parametrize(("size", "left"), [(0, None), (2, b"bb"), (100, b"bbb")])
def test_a_damaged_entry_is_shorter_or_gone(size: int, left: bytes | None) -> None:
    """Only the newest batch has the damage, so an old copy is whole."""
    checkpoint = Checkpoint()
    assert not checkpoint.damage(0, size)
    committed(checkpoint, b"a")
    committed(checkpoint, b"b")
    assert checkpoint.damage(3, size)
    assert checkpoint.begin().entry(1) == left
    checkpoint.put_back(1)
    assert checkpoint.begin().entry(1) == b"aaaa"
