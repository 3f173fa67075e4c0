"""Writes a package: a tar archive that Spark unpacks in the working directory of each executor."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path, PurePosixPath

from headrace_spark.packaging.distributions import PackedFile
from headrace_spark.processes.archives import MANIFEST, PackageManifest

#: More would take much longer, and make the archive a few percent smaller.
_COMPRESSION = 4


def write_archive(
    path: Path, manifest: PackageManifest, files: Sequence[PackedFile], *, progress: Callable[[int], None]
) -> None:
    """Write a package; ``progress`` is called with the number of bytes added. An older package stays until the new one is complete."""
    written = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with tarfile.open(written, "w:gz", compresslevel=_COMPRESSION, format=tarfile.PAX_FORMAT) as archive:
            _add_text(archive, MANIFEST, json.dumps(manifest.to_json(), indent=1) + "\n")
            _add_text(archive, "bin/python", _launcher(manifest.python), mode=0o755)
            for file in files:
                archive.addfile(*_entry(file))
                progress(file.source.stat().st_size)
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def _launcher(version: str) -> str:
    text = resources.files(__package__).joinpath("launcher.sh").read_text(encoding="utf-8")
    return text.replace("{version}", version)


def _add_text(archive: tarfile.TarFile, name: str, text: str, mode: int = 0o644) -> None:
    content = text.encode()
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    archive.addfile(info, io.BytesIO(content))


def _entry(file: PackedFile) -> tuple[tarfile.TarInfo, io.BytesIO]:
    content = file.source.read_bytes()
    info = tarfile.TarInfo(str(file.place))
    status = file.source.stat()
    # The time is kept, so that compiled files stay valid. The owner is left out, so that no user name is published.
    info.size, info.mtime = len(content), int(status.st_mtime)
    info.mode = 0o755 if status.st_mode & 0o111 else 0o644
    return info, io.BytesIO(content)


def placed(files: Sequence[PackedFile], directory: str) -> list[PackedFile]:
    """Return files with their places below a directory of the archive."""
    return [PackedFile(file.source, PurePosixPath(directory) / file.place) for file in files]
