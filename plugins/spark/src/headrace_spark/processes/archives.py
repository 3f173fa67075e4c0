"""Packages of jobs among the archives of a Spark: recognized, checked, and used as the Python of the workers."""

from __future__ import annotations

import json
import os
import platform
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.foundation.errors import JobError, OptionError

#: The first file of a package describes its content.
MANIFEST = "headrace-package.json"
#: The directory of an executor in which the package is unpacked.
DIRECTORY = "environment"
SETTING = "spark.archives"
_FORMAT = 1


@dataclass(frozen=True)
class PackageManifest:
    """What a package holds."""

    job: str
    python: str
    platform: str
    #: The versions of the distributions by name.
    distributions: Mapping[str, str] = field(default_factory=dict)
    #: Whether it contains a Python interpreter.
    has_python: bool = False

    @classmethod
    def of_this_environment(cls, job: str, distributions: Mapping[str, str], *, has_python: bool) -> PackageManifest:
        """Return the manifest of a package that this Python makes."""
        return cls(job, _this_python(), _this_platform(), dict(distributions), has_python)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "format": _FORMAT,
            "job": self.job,
            "python": self.python,
            "platform": self.platform,
            "has_python": self.has_python,
            "distributions": dict(self.distributions),
        }

    @classmethod
    def read(cls, archive: Path) -> PackageManifest | None:
        """Return the manifest of an archive; None if it is not a package of headrace. Raises OSError."""
        try:
            with tarfile.open(archive, "r|*") as content:
                first = content.next()
                if first is None or first.name != MANIFEST:
                    return None
                file = content.extractfile(first)
                found = json.loads(file.read()) if file is not None else {}
        except (tarfile.TarError, ValueError, EOFError):
            return None
        distributions = {str(name): str(version) for name, version in found["distributions"].items()}
        return cls(found["job"], found["python"], found["platform"], distributions, found["has_python"])

    def check_fits(self, archive: str) -> None:
        """Check that a driver in this Python can use the package. Raises JobError."""
        if self.python != _this_python():
            raise JobError(
                f"the package {archive} is for Python {self.python}, but the driver runs on Python {_this_python()}",
                plugin="spark",
                option="archive",
                hint="create it with the driver's Python: headrace package",
            )
        for name, version in self.distributions.items():
            here = _version_here(name) if name.startswith("headrace") else version
            if here is not None and here != version:
                raise JobError(
                    f"the package {archive} has {name} {version}, but the driver has {here}",
                    plugin="spark",
                    option="archive",
                    hint="create it again in the driver's environment: headrace package",
                )


def conf_with_archive(conf: Mapping[str, str], archive: str | None, submitted: Mapping[str, str]) -> dict[str, str]:
    """Return ``conf`` with a package among Spark's archives, and with its Python as that of the workers.

    ``submitted``: what spark-submit has set. A package that is already among the archives is not added again. Raises OptionError
    if ``archive`` is no package, JobError if it does not fit the driver.
    """
    known = {**submitted, **conf}
    archives = [each for each in known.get(SETTING, "").split(",") if each]
    found = dict(conf)
    if archive is not None and DIRECTORY not in [each.partition("#")[2] for each in archives]:
        check_package(archive)
        found[SETTING] = ",".join([f"{archive}#{DIRECTORY}", *archives])
    if archive is not None:
        found.setdefault("spark.pyspark.python", f"./{DIRECTORY}/bin/python")
    elif "spark.pyspark.python" not in known and "PYSPARK_PYTHON" not in os.environ:
        python = packaged_python(archives)
        if python is not None:
            found["spark.pyspark.python"] = python
    return found


def check_package(archive: str) -> None:
    """Check that an archive is a package that fits this driver, if it is on this machine. Raises OptionError, JobError."""
    path = local_path(archive)
    if path is None:
        return
    try:
        manifest = PackageManifest.read(path)
    except OSError as error:
        raise OptionError(
            f"the package {archive!r} cannot be read: {error.strerror or error}",
            plugin="spark",
            option="archive",
            hint="headrace package job.py -o job.tar.gz creates a package",
        ) from error
    if manifest is None:
        raise OptionError(
            f"{archive!r} is not a package of a job",
            plugin="spark",
            option="archive",
            hint="create one with headrace package job.py -o job.tar.gz; give other archives in conf, as spark.archives",
        )
    manifest.check_fits(archive)


def packaged_python(archives: Sequence[str]) -> str | None:
    """Return the Python of the package among Spark's archives; None if there is none, or it cannot be read here.

    Raises JobError if it does not fit the driver.
    """
    for each in archives:
        archive, _, directory = each.partition("#")
        path = local_path(archive)
        manifest = PackageManifest.read(path) if path is not None and path.is_file() else None
        if manifest is not None:
            manifest.check_fits(archive)
            return f"./{directory or path.name}/bin/python" if path is not None else None
    return None


def local_path(archive: str) -> Path | None:
    """Return the path of an archive on this machine; None if it is elsewhere (hdfs, s3a, the image of a container)."""
    parts = urlsplit(archive)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(archive)


def _this_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _this_platform() -> str:
    return f"{platform.system()} {platform.machine()}"


def _version_here(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
