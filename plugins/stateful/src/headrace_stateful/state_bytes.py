"""State as bytes: see ``headrace.state_frames``."""

from __future__ import annotations

from headrace.state_frames import FORMAT_VERSION, pack, unpack

__all__ = ["FORMAT_VERSION", "pack", "unpack"]
