"""State of windows: frames of partial results, appended and merged with one another when enough has come.

Frames lie in the order in which their rows came, each at least twice as long as the next (O'Neil et al., "The log-structured
merge-tree", 1996): so a row is merged a logarithmic number of times, and few frames have to be looked through. Partials
that are stored already and those that are not are kept apart, so that a delta is available at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.mapped_memory import MappedMemory

from headrace_stateful.keys.columns import mapped_frame

#: The column by which windows are taken out of a log: their end, in microseconds since the Unix epoch.
END = "__hr_end"

Merge = Callable[[pl.DataFrame], pl.DataFrame]
_FOREVER = 2**63 - 1


class _Part:
    """A frame, and between what its window ends lie."""

    __slots__ = ("frame", "greatest", "least")

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        ends = frame[END]
        self.least: int = ends.min()  # type: ignore[assignment]
        self.greatest: int = ends.max()  # type: ignore[assignment]


class PartialLog:
    """A log of frames with one row per group and window, which ``merge`` makes of several.

    ``settle`` is called with merged rows that have all of their groups from the beginning on, and may make them smaller.
    """

    def __init__(self, schema: Mapping[str, pl.DataType], merge: Merge, settle: Merge | None = None) -> None:
        self._empty = pl.DataFrame(schema=dict(schema))
        self._merge = merge
        self._settle = settle
        self._stored: list[_Part] = []
        self._fresh: list[_Part] = []
        self._memory: MappedMemory | None = None

    def use_mapped(self, memory: MappedMemory) -> None:
        """Keep frames in mapped files from now on."""
        self._memory = memory

    def append(self, frame: pl.DataFrame, *, stored: bool = False, repeats: bool = False, mapped: bool = False) -> None:
        """Append rows that came after all others. ``repeats``: there may be several per group and window; else at most one.

        ``mapped``: the frame is in mapped files already, if frames are kept there.
        """
        if frame.height == 0:
            return
        parts = self._stored if stored else self._fresh
        together, height = [frame.select(self._empty.columns)], frame.height
        while parts and parts[-1].frame.height < 2 * height:
            part = parts.pop().frame
            together.append(part)
            height += part.height
        merged = len(together) > 1 or repeats
        made = self._merge(pl.concat(together[::-1])) if merged else together[0]
        if self._settle is not None and not self._stored and not self._fresh:
            made, mapped = self._settle(made), False
        parts.append(_Part(made if mapped and not merged else mapped_frame(made, self._memory)))

    def restore(self, frame: pl.DataFrame) -> None:
        """Append rows of a stored state. Raises CheckpointError when their columns are not those of the log."""
        if not set(self._empty.schema.items()) <= set(frame.schema.items()):
            raise CheckpointError(
                f"the state of a window operator has other columns: {_shown(frame)}, not {_shown(self._empty)}"
            )
        self.append(frame, stored=True)

    def take(self, ends: pl.Expr, until: int = _FOREVER) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Remove the rows for which ``ends``, a condition over ``END``, is true: those that were stored, and the others.

        Only windows that end at ``until`` or before may be meant.
        """
        return self._taken(self._stored, ends, until), self._taken(self._fresh, ends, until)

    def _taken(self, parts: list[_Part], ends: pl.Expr, until: int) -> pl.DataFrame:
        found: list[pl.DataFrame] = []
        kept: list[_Part] = []
        for part in parts:
            if part.least > until:
                kept.append(part)
                continue
            mask = part.frame.select(ends).to_series()
            count = mask.sum()
            if count == 0:
                kept.append(part)
            elif count == part.frame.height:
                found.append(part.frame)
            else:
                found.append(part.frame.filter(mask))
                kept.append(_Part(mapped_frame(part.frame.filter(~mask), self._memory)))
        parts[:] = kept
        return self._joined(found)

    def select(self, condition: pl.Expr, until: int = _FOREVER) -> pl.DataFrame:
        """Return the merged rows for which a condition over ``END`` is true; they stay."""
        parts = [part for part in (*self._stored, *self._fresh) if part.least <= until]
        return self._joined([part.frame.filter(condition) for part in parts])

    def of_groups(self, groups: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
        """Return the merged rows of groups: those whose ``END`` and keys are in a frame. They stay."""
        ends = groups[END]
        if not len(ends):
            return self._empty
        least, greatest = ends.min(), ends.max()
        found = [
            part.frame.join(groups, on=[END, *keys], how="semi", nulls_equal=True, maintain_order="left")
            for part in (*self._stored, *self._fresh)
            if part.least <= greatest and part.greatest >= least  # type: ignore[operator]
        ]
        return self._joined(found)

    def unstored(self) -> pl.DataFrame:
        """Return the rows since the last call, merged; they count as stored from now on."""
        # Until a checkpoint has stored it, the frame waits in mapped files, too.
        frame = mapped_frame(self._joined([part.frame for part in self._fresh]), self._memory)
        self._fresh = []
        self.append(frame, stored=True, mapped=True)
        return frame

    def whole(self) -> pl.DataFrame:
        """Return all rows, merged; they count as stored from now on."""
        frame = mapped_frame(self._joined([part.frame for part in (*self._stored, *self._fresh)]), self._memory)
        self._stored, self._fresh = [], []
        self.append(frame, stored=True, mapped=True)
        return frame

    def _joined(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        frames = [frame for frame in frames if frame.height]
        if not frames:
            return self._empty
        return frames[0] if len(frames) == 1 else self._merge(pl.concat(frames))

    @property
    def least_end(self) -> int | None:
        """The end of the first window."""
        return min((part.least for part in (*self._stored, *self._fresh)), default=None)

    @property
    def greatest_end(self) -> int | None:
        """The end of the last window."""
        return max((part.greatest for part in (*self._stored, *self._fresh)), default=None)

    def ends(self) -> pl.Series:
        """The ends of all windows, each once, in order."""
        found = [part.frame[END].unique() for part in (*self._stored, *self._fresh)]
        return (pl.concat(found) if found else self._empty[END]).unique().sort()

    def __len__(self) -> int:
        return sum(part.frame.height for part in (*self._stored, *self._fresh))


def _shown(frame: pl.DataFrame) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in frame.schema.items())
