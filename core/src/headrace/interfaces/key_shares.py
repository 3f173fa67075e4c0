"""The share of one shard in keyed state: the rows that belong to it when state is divided among another number of
shards.

A job that starts from a savepoint may have another number of shards than before. The state of all shards before is then
divided by the hash of the key, as the rows of its input are (``headrace.flow.key_hashes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.foundation.errors import CheckpointError
from headrace.interfaces.key_hashing import key_hashes

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class KeyShare:
    """Shard ``number`` of ``count`` after a shuffle. headrace makes it and passes it to ``StatefulOperator.share_of``."""

    number: int
    count: int
    #: For each side of the shuffle, the input columns whose hash divides the rows.
    keys: tuple[tuple[str, ...], ...]

    def holds(self, frame: pl.DataFrame, *, side: int = 0, names: Sequence[str] | None = None) -> NDArray[np.bool_]:
        """Return which rows of a state belong to the shard.

        ``names``: the columns of ``frame`` with the shuffle's key, in its order, if their names differ from those of
        the input. They must have the same types as in the input. Raises CheckpointError when a column is not there.
        """
        import numpy as np

        columns = tuple(self.keys[side] if names is None else names)
        missing = [name for name in columns if name not in frame.columns]
        if missing or len(columns) != len(self.keys[side]):
            raise CheckpointError(
                f"the stored state cannot be divided among another number of shards by the key {', '.join(self.keys[side])}: its rows do "
                f"not contain {missing or columns}",
                hint="start with as many shards as before",
            )
        if not columns:
            return np.full(frame.height, self.number == 0)
        result: NDArray[np.bool_] = key_hashes(frame, columns) % np.uint64(self.count) == np.uint64(self.number)
        return result
