"""Writing files that must be there, whole, after a crash of the process or of the machine.

Used by checkpoints, state, savepoints and the file sink. A file is durable when its content and its directory's entry are
both on the device; a program that stops in between must find the file as it was before.
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.foundation.directories import sync_directory
from headrace.foundation.private_files import FILE_MODE

__all__ = ["replace_durably", "sync_directory", "write_durably", "write_whole"]

_PUBLIC_MODE = 0o666
# Linux writes 2 GiB - 4 KiB at most with one call; smaller calls let signals through.
_WRITE_BYTES_MAX = 64 * 1024**2


def write_whole(descriptor: int, data: bytes) -> None:
    """Write all of ``data``. A full device takes a part of it first, and says so only at the next call. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view[:_WRITE_BYTES_MAX]) :]


def write_durably(path: str | os.PathLike[str], content: bytes, *, private: bool = True) -> None:
    """Write a file and make its content durable; an existing file is overwritten. Raises OSError.

    The directory's entry is not made durable: call ``sync_directory`` when all files of a directory are written.
    ``private``: only the job's own user can read it, else the process's umask decides.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(path, flags, FILE_MODE if private else _PUBLIC_MODE)
    try:
        write_whole(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, content: bytes, *, temporary: Path | None = None, private: bool = True) -> None:
    """Replace a file, or make it, as one step: after a crash it has its old content or the new one. Raises OSError.

    The content is first written to ``temporary``, which must be in the same directory and used by no other process at the
    same time; by default that is the path with ``.new`` behind it.
    """
    temporary = temporary or path.with_name(path.name + ".new")
    write_durably(temporary, content, private=private)
    os.replace(temporary, path)
    sync_directory(path.parent)
