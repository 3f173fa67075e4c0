"""What a failed system call means for the files that a job keeps its progress in: a text for people, and how to mend it."""

from __future__ import annotations

import errno
import os

from headrace.foundation.errors import RetriableError

_HINTS = {
    errno.ENOSPC: "make room on the device",
    errno.EDQUOT: "raise the quota, or make room",
    errno.EROFS: "the file system is read-only: mount it so that it can be written",
    errno.EACCES: "let the job's user write there",
    errno.EPERM: "let the job's user write there",
    errno.ENOENT: "the directory has gone: bring it back with what was in it, or mount it",
    errno.ENOTDIR: "a part of this path is a file: name a directory, or remove the file",
    errno.EFBIG: "the process may not write files that large: raise the limit (ulimit -f)",
    errno.EIO: "the disk does not work",
    errno.ESTALE: "mount the file system anew",
}
#: What Java and other libraries say where there is no error number.
_TEXTS = {os.strerror(number): number for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)}


def storage_error(error: OSError, path: str | os.PathLike[str], *, what: str = "checkpoint") -> RetriableError:
    """Return the error of a write below ``path`` that failed: what could not be written, where, and how to mend it."""
    place = error.filename or os.fspath(path)
    why = error.strerror or str(error)
    return RetriableError(f"the {what} cannot be written to {place!r}: {why}", hint=_HINTS.get(error.errno or 0))


def storage_trouble(text: str) -> tuple[str, str] | None:
    """Return why and how to mend it, where a text of Java or Spark says that a device is full or read-only; None: it does not."""
    for words, number in _TEXTS.items():
        if words in text:
            return words, _HINTS[number]
    return None
