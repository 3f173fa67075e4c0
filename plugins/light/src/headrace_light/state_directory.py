"""State stores that need no other package: one in a directory, and one that stores nothing."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from headrace.foundation.durable_files import sync_directory, write_durably
from headrace.foundation.errors import CheckpointError
from headrace.foundation.private_files import make_private_directory
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.state_store import ReadableStateStore, StateStore, versions_to_load, versions_to_remove

_NAME = re.compile(r"(\d{20})\.(delta|snapshot)")


class NoStateStore(StateStore):
    """Keeps nothing: for jobs without a checkpoint, whose state lives in their shards and ends with them."""

    forgets: ClassVar[bool] = True

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        """Store nothing: there is no checkpoint to return to."""

    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        """Yield nothing."""
        return iter(())

    def remove(self, shard: str, *, before: int) -> None:
        """Nothing is kept."""

    def forget_before(self, shard: str, version: int) -> None:
        """Nothing is kept."""


class DirectoryStateSettings(Settings, frozen=True, kw_only=True):
    """Options of the state store ``directory``."""

    path: Annotated[str, option("directory of the state files")]


class DirectoryStateStore(ReadableStateStore):
    """Keeps each version of a shard's state as one file, written under another name and renamed: it exists completely or not at all."""

    Settings: ClassVar[type[Settings]] = DirectoryStateSettings
    forgets: ClassVar[bool] = True

    @classmethod
    def defaults(cls, job: str, directory: str) -> Mapping[str, Any]:
        return {"path": os.path.join(directory, "state")}

    def __init__(self, settings: DirectoryStateSettings) -> None:
        self._path = Path(settings.path)
        #: Shards that have versions: their directories are not created again, because later versions need the earlier ones.
        self._stored: set[str] = set()

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        directory = self._directory(shard)
        self._make(shard, directory)
        path = directory / f"{version:020d}.{'snapshot' if snapshot else 'delta'}"
        temporary = path.with_suffix(".new")
        write_durably(temporary, delta)
        # A version of an unfinished checkpoint is replaced, whether it was a snapshot or a delta.
        for kind in ("delta", "snapshot"):
            other = directory / f"{version:020d}.{kind}"
            if other != path:
                other.unlink(missing_ok=True)
        os.replace(temporary, path)
        sync_directory(directory)
        self._stored.add(shard)

    def _make(self, shard: str, directory: Path) -> None:
        """Make a shard's directory at its first version. Raises FileNotFoundError when it, or all of them, have been removed since."""
        for made, path in ((shard in self._stored, directory), (bool(self._stored), self._path)):
            if made and not path.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if shard not in self._stored:
            make_private_directory(directory)

    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        files = self._versions(shard)
        wanted, unfinished = versions_to_load([(number, whole) for number, (whole, _) in files.items()], version)
        for number in wanted:
            whole, path = files[number]
            try:
                content = path.read_bytes()
            except OSError as error:
                raise CheckpointError(f"state file {path} cannot be read: {error.strerror}") from error
            self._stored.add(shard)
            yield number, content, whole
        for number in unfinished:
            files[number][1].unlink(missing_ok=True)
        if unfinished:  # the next checkpoint has their numbers: they must not come back when the power fails
            sync_directory(self._directory(shard))

    def stored(self, shard: str, version: int) -> tuple[bytes, bool] | None:
        for kind in ("delta", "snapshot"):
            path = self._directory(shard) / f"{version:020d}.{kind}"
            try:
                return path.read_bytes(), kind == "snapshot"
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CheckpointError(f"state file {path} cannot be read: {error.strerror}") from error
        return None

    def go_on_from(self, shard: str, version: int) -> None:
        files = self._versions(shard)
        if files:
            self._stored.add(shard)
        for number, (_, path) in files.items():
            if number > version:
                path.unlink(missing_ok=True)
        if any(number > version for number in files):
            sync_directory(self._directory(shard))

    def remove(self, shard: str, *, before: int) -> None:
        files = self._versions(shard)
        for number in versions_to_remove([(number, whole) for number, (whole, _) in files.items()], before):
            files[number][1].unlink(missing_ok=True)

    def forget_before(self, shard: str, version: int) -> None:
        for number, (_, path) in self._versions(shard).items():
            if number < version:
                path.unlink(missing_ok=True)

    def place(self, shard: str, version: int) -> str:
        return f"state file {self._directory(shard) / f'{version:020d}'} (.delta or .snapshot)"

    def _versions(self, shard: str) -> dict[int, tuple[bool, Path]]:
        """Return (is snapshot, file) by version, in order."""
        directory = self._directory(shard)
        found = {}
        for path in directory.iterdir() if directory.is_dir() else ():
            if match := _NAME.fullmatch(path.name):
                found[int(match[1])] = (match[2] == "snapshot", path)
        return dict(sorted(found.items()))

    def _directory(self, shard: str) -> Path:
        return self._path / re.sub(r"[^A-Za-z0-9_.-]", lambda found: f"%{ord(found[0]):02x}", shard)
