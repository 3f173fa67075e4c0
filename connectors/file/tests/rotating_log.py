"""A log file as writers and rotation tools treat it."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import zstandard

#: The ways of rotation that keep what was written.
KEEPING = ("rename", "dated", "copytruncate", "gzip", "zstd", "xz", "copytruncate_gzip", "copytruncate_bzip2")
_SUFFIXES = {"gzip": ".gz", "zstd": ".zst", "xz": ".xz", "bzip2": ".bz2"}


class RotatingLog:
    """Writes numbered lines to ``path`` and rotates it. ``lines`` is all that was ever written, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[bytes] = []
        self._rotations = 0
        path.touch()

    def write(self, count: int, *, ended: bool = True) -> None:
        """Append lines; the last one without newline unless ``ended``."""
        made = [b"line %d of the log" % (len(self.lines) + n) for n in range(count)]
        self.lines += made
        with open(self.path, "ab") as file:
            file.write(b"\n".join(made) + (b"\n" if ended else b""))

    def rotate(self, way: str, *, create: bool = True) -> Path:
        """Rotate in one of the ways of KEEPING; return where the content is now."""
        self._rotations += 1
        if way == "dated":
            aside = self.path.with_name(f"{self.path.name}-2024{self._rotations:04d}")
            os.rename(self.path, aside)
        else:
            self._shift()
            aside = self.path.with_name(f"{self.path.name}.1")
            if way.startswith("copytruncate"):
                shutil.copy2(self.path, aside)
                os.truncate(self.path, 0)
                way = way.removeprefix("copytruncate").removeprefix("_")
            else:
                os.rename(self.path, aside)
        if way in _SUFFIXES:
            aside = compress(aside, way)
        if create:
            self.path.touch()
        return aside

    def _shift(self) -> None:
        """log.2 becomes log.3, log.1 becomes log.2, whatever comes after."""
        for number in range(20, 0, -1):
            for suffix in ("", *_SUFFIXES.values()):
                old = self.path.with_name(f"{self.path.name}.{number}{suffix}")
                if old.exists():
                    os.rename(old, self.path.with_name(f"{self.path.name}.{number + 1}{suffix}"))


def compress(path: Path, way: str) -> Path:
    """Compress a file as the tools of these names do: the time of the last change stays."""
    status = path.stat()
    data = path.read_bytes()
    packed = path.with_name(path.name + _SUFFIXES[way])
    packed.write_bytes(compressed(data, way))
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()
    return packed


def compressed(data: bytes, way: str) -> bytes:
    """Return bytes as the tool of this name compresses them."""
    makers: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
    return zstandard.ZstdCompressor().compress(data) if way == "zstd" else makers[way](data)
