"""A Python of 64-bit ARM with headrace, in qemu: Debian's packages and the wheels of that platform, in a directory of their own."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

from uv import find_uv_bin

from tests.packaging.wheels import ROOT
from tests.servers.errors import MissingDownloadError, MissingProgramError
from tests.servers.programs import require_program

#: Python 3.11 of Debian 12, and the libraries that it and the wheels need.
_PACKAGES = (
    "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "zlib1g", "libexpat1", "libssl3", "libffi8",
    "libsqlite3-0", "libbz2-1.0", "liblzma5", "libuuid1", "libstdc++6", "libgcc-s1", "libcrypt1",
)  # fmt: skip
_RELEASE = "bookworm"


class ArmPython:
    """``command`` begins with Python of 64-bit ARM, which sees the installed packages by ``environment``."""

    def __init__(self, place: Path, requirements: Sequence[str], wheels: Sequence[Path]) -> None:
        qemu = require_program("qemu-aarch64-static", "qemu-user-static")
        system, packages = place / "system", place / "packages"
        _unpack_debian(place, system)
        install = [
            find_uv_bin(),
            "pip",
            "install",
            "--quiet",
            "--target",
            packages,
            "--python-platform",
            "aarch64-manylinux_2_28",
        ]
        given = ["--python-version", "3.11", "--only-binary", ":all:", "--constraints", ROOT / "constraints.txt"]
        _fetch([*map(str, [*install, *given]), *requirements], place)
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(packages)
        self.command = [str(qemu), "-L", str(system), str(system / "usr" / "bin" / "python3.11")]
        self.environment = {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"}


def _unpack_debian(place: Path, system: Path) -> None:
    """Fetch the packages of the other architecture by apt, with lists and a state of its own, and unpack them."""
    if shutil.which("apt-get") is None:
        raise MissingProgramError("apt-get is not installed; it fetches a Python of 64-bit ARM")
    for name in ("state/lists/partial", "cache/archives/partial", "debs"):
        (place / name).mkdir(parents=True)
    (place / "state" / "status").touch()
    own = {
        "Dir::State": place / "state", "Dir::State::status": place / "state" / "status", "Dir::Cache": place / "cache",
        "APT::Architecture": "arm64", "APT::Architectures": "arm64", "APT::Default-Release": _RELEASE, "APT::Sandbox::User": "root",
    }  # fmt: skip
    options = [part for name, value in own.items() for part in ("-o", f"{name}={value}")]
    _fetch(["apt-get", *options, "update", "-qq"], place / "debs")
    _fetch(["apt-get", *options, "download", "-qq", *_PACKAGES], place / "debs")
    for package in sorted((place / "debs").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(system)], check=True)


def _fetch(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingDownloadError(f"{command[0]} failed:\n{done.stderr[-2000:]}")
