"""The user's own files in a package: the job file and the modules that it imports. Secrets are left out or refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from headrace.foundation.errors import JobError
from headrace.foundation.secrecy import masked

from headrace_spark.packaging.distributions import PackedFile
from headrace_spark.packaging.modules import FoundModule

#: Names of files that hold secrets. They are not packed.
_SECRET_FILES = (
    ".*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.keytab",
    "id_rsa*",
    "id_ed25519*",
    "credentials*",
    "*secret*",
    "*password*",
)
_NOT_CODE = frozenset({"__pycache__", "node_modules"})
_TEXTS = frozenset({".py", ".sql", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".properties", ".conf"})
#: What stands where a value is read or looked up, and is no secret itself.
_NO_LITERAL = re.compile(r"\$\{[^{}]*\}")


def own_files(job_file: Path, modules: Iterable[FoundModule]) -> tuple[list[PackedFile], list[Path]]:
    """Return the job file and the user's modules with their places, and the files that are left out as they may hold secrets."""
    packed = {PurePosixPath(job_file.name): job_file}
    left_out: list[Path] = []
    for module in modules:
        root = module.path.parent
        for file in _files(module.path):
            if file.suffix != ".py" and _is_secret(file):
                left_out.append(file)
            else:
                packed[PurePosixPath(file.relative_to(root).as_posix())] = file
    return [PackedFile(source, place) for place, source in sorted(packed.items())], left_out


def check_for_secrets(files: Iterable[PackedFile]) -> None:
    """Refuse files in which a secret is written out. Raises JobError that names the line, not the secret."""
    for file in files:
        if file.source.suffix not in _TEXTS:
            continue
        text = _NO_LITERAL.sub("…", file.source.read_text(encoding="utf-8", errors="replace"))
        for number, (line, shown) in enumerate(zip(text.split("\n"), masked(text).split("\n"), strict=True), 1):
            if line != shown:
                raise JobError(
                    f"{file.source}, line {number}, seems to contain a secret, and secrets are not packed",
                    plugin="spark",
                    hint='refer to its place instead: "${VARIABLE}" or "${file:/run/secrets/…}"; '
                    "if it is no secret, pass --allow-literals",
                )


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") or part in _NOT_CODE for part in file.relative_to(path).parts[:-1])
        if file.is_file() and not hidden:
            yield file


def _is_secret(file: Path) -> bool:
    return any(fnmatch(file.name.lower(), pattern) for pattern in _SECRET_FILES)
