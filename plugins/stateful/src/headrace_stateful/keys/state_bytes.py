"""State as bytes: see ``headrace.runtime.state_frames``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.interfaces.frozen_state import FrozenState
from headrace.runtime.state_frames import FORMAT_VERSION, pack, pack_into, unpack

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FORMAT_VERSION", "frozen_frames", "pack", "pack_into", "unpack"]


def frozen_frames(
    frames: Mapping[str, pl.DataFrame], values: Mapping[str, Any] | None = None, *, whole: bool
) -> FrozenState:
    """Return what packs a snapshot (``whole``) or a delta later. The frames and values must not change until then."""
    kind = "snapshot" if whole else "delta"
    rows = sum(frame.height for frame in frames.values())
    return FrozenState.written(lambda content: pack_into(content, kind, frames, values), rows)
