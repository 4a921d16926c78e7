"""Records by column, as many can be looked at in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from tallystream.aggregator.table.chunk import Chunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Columns(NamedTuple):
    """As a chunk, in arrays."""

    offsets: NDArray[np.int64]
    at_ms: NDArray[np.int64]
    keys: pa.BinaryArray
    values: pa.BinaryArray

    @classmethod
    def of(cls, chunk: Chunk) -> Columns:
        """Return a chunk in arrays."""
        times = (np.fromiter(column, np.int64, len(column)) for column in chunk[:2])
        return cls(*times, *(pa.array(column, pa.binary()) for column in chunk[2:]))

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """Return one after the other; at least one, and less than 2 GB of values."""
        offsets, at_ms, keys, values = zip(*parts, strict=True)
        return cls(np.concatenate(offsets), np.concatenate(at_ms), pa.concat_arrays(keys), pa.concat_arrays(values))

    def take(self, indices: NDArray[np.int64]) -> Chunk:
        """Return some of them."""
        at = pa.array(indices)
        texts = (column.take(at).to_pylist() for column in self[2:])
        return Chunk(self.offsets[indices].tolist(), self.at_ms[indices].tolist(), *texts)
