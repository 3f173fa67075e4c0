"""The Python interpreter itself in a package, for workers that have none of the same version."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from headrace.foundation.errors import JobError

from headrace_spark.packaging.distributions import PackedFile

#: Parts of the standard library that no worker needs.
_LEFT_OUT = frozenset(
    {"__pycache__", "ensurepip", "idlelib", "lib2to3", "site-packages", "dist-packages", "test", "tests", "tkinter", "turtledemo"}
)  # fmt: skip
#: Parts of the C library of the system. A worker has its own, which must be as new as this machine's.
_OF_SYSTEM = re.compile(r"^(ld-linux|ld-musl|libc|libm|libdl|libpthread|librt|libutil|libresolv|libnsl)[.-]")


def interpreter_files() -> Iterator[PackedFile]:
    """Yield the files of this Python: program, standard library, and the shared libraries that they load. Raises JobError."""
    if not sys.platform.startswith("linux"):
        raise JobError("a Python interpreter can be packed only on Linux", plugin="spark", option="with_python")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(sys.base_prefix) / "bin" / f"python{version}"
    if not program.exists():
        program = Path(getattr(sys, "_base_executable", sys.executable))
    program = program.resolve()
    yield PackedFile(program, PurePosixPath("bin", f"python{version}"))
    library = Path(sysconfig.get_path("stdlib")).resolve()
    loading = [program]
    for file in sorted(library.rglob("*")):
        inside = file.relative_to(library)
        left_out = _LEFT_OUT & set(inside.parts[:-1]) or file.name.startswith("_tkinter.")
        if not file.is_file() or left_out or inside.parts[0].startswith("config-"):
            continue
        yield PackedFile(file, PurePosixPath("lib", f"python{version}", inside.as_posix()))
        if file.suffix == ".so":
            loading.append(file)
    for name, source in sorted(_shared_libraries(loading).items()):
        yield PackedFile(source, PurePosixPath("lib", name))


def _shared_libraries(programs: list[Path]) -> dict[str, Path]:
    done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False)
    found = dict(re.findall(r"^\s+(\S+) => (/\S+)", done.stdout, re.MULTILINE))
    return {name: Path(path).resolve() for name, path in found.items() if not _OF_SYSTEM.match(name)}
