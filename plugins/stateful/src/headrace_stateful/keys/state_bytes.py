"""State as bytes: see ``headrace.runtime.state_frames``."""

from __future__ import annotations

from headrace.runtime.state_frames import FORMAT_VERSION, pack, pack_into, unpack

__all__ = ["FORMAT_VERSION", "pack", "pack_into", "unpack"]
