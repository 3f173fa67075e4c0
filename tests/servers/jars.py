"""The servers' jars, resolved by Maven from the files in `poms/` and kept in the cache."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.servers.directories import cache_directory, digest, locked
from tests.servers.errors import MissingDownloadError
from tests.servers.programs import require_program

_COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_POMS = Path(__file__).with_name("poms")


def program_directory(name: str) -> Path:
    """The directory of `poms/NAME.xml`'s program: its jars are in `lib/`, what we make of them beside it.

    Runs Maven the first time, which needs the network (repositories and proxies come from Maven's own settings).
    The directory's name changes with the pom, so that a new version never meets the leftovers of an old one.
    """
    pom = _POMS / f"{name}.xml"
    directory = cache_directory() / f"{name}-{digest(pom.read_bytes())}"
    with locked(cache_directory() / f"{name}.jars.lock"):
        if not directory.is_dir():
            scratch = Path(tempfile.mkdtemp(dir=cache_directory()))
            command = [str(require_program("mvn", "maven")), "-B", "-q", "-f", str(pom), _COPY_DEPENDENCIES]
            options = ["-DincludeScope=runtime", f"-DoutputDirectory={scratch}/lib", "-Dstyle.color=never"]
            done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
            if done.returncode:
                raise MissingDownloadError(f"Maven could not fetch the jars of {pom}:\n{done.stdout[-3000:]}")
            scratch.rename(directory)
    return directory
