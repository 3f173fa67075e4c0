"""Fills .venv for ``make setup``, with nothing but Python's own modules and uv:

    .venv/bin/python -m tests.packaging.set_up core plugins/light …

uv does it in half of the work that pip needs. uv knows no settings of pip, and these say where packages come from (a company's index, a
folder, a certificate): they are handed to it. Where pip has a setting for which uv has no word, or uv fails, pip does the same, and its
message is the one to read.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What uv calls a setting of pip that says where packages come from.
_OF_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "trusted-host": "UV_INSECURE_HOST",
    "proxy": "ALL_PROXY",
    "no-index": "UV_NO_INDEX",
    "find-links": "UV_FIND_LINKS",
}
#: Settings of pip that say nothing of where packages come from or which are taken.
_WITHOUT_MEANING = {
    "cache-dir", "compile", "disable-pip-version-check", "no-cache-dir", "no-color", "no-compile", "no-input", "no-python-version-warning",
    "no-warn-script-location", "progress-bar", "quiet", "require-virtualenv", "root-user-action", "verbose",
}  # fmt: skip
_BUILDERS = ("editables", "hatchling", "setuptools")
_NEEDED = ("-r", "requirements-dev.txt", "-r", "requirements-docs.txt")


def settings_of_pip(listed: str) -> dict[str, str]:
    """Return the settings of ``pip install`` from what ``pip config list`` writes; the environment counts more than files."""
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        place, _, setting = name.rpartition(".")
        if place in found:
            found[place][setting] = str(ast.literal_eval(value))
    return found["global"] | found["install"] | found[":env:"]


def words_for_uv(settings: Mapping[str, str]) -> dict[str, str] | None:
    """Return the variables with which uv takes packages from where pip would; None if there is a setting that it has no word for."""
    # uv takes a package from the first index that has it, if it is not told to look at all of them as pip does.
    words = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for setting, value in settings.items():
        if setting in _OF_UV:
            name = _OF_UV[setting]
            # Folders may have spaces in their names, so uv wants commas between them. pip separates by white space everywhere.
            words[name] = ("," if name == "UV_FIND_LINKS" else " ").join(value.split())
        elif setting not in _WITHOUT_MEANING:
            return None
    return words


def names_of(packages: Iterable[str]) -> list[str]:
    """Return the names of the distributions in these folders of the workspace."""
    return [
        tomllib.loads((ROOT / each / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
        for each in packages
    ]


def fill(packages: Sequence[str]) -> None:
    """Install these packages of the workspace, and all that they and the tests need. Raises CalledProcessError."""
    _pip("install", "--no-compile", "-c", "constraints.txt", "uv")
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    words = words_for_uv(settings_of_pip(listed.stdout))
    if words is None or not _by_uv(packages, {**words, **os.environ}):
        _by_pip(packages)


def _by_uv(packages: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether uv has installed everything."""
    from_index = ["-c", "constraints.txt", "--no-build-isolation"]
    try:
        _uv(*from_index, *_BUILDERS, environment=environment)
        _workspace(packages, environment)
        # PySpark has no wheel. What is built here is unpacked at once: packing 400 MB would take longer than all other packages.
        stored = ["--config-settings-package", "pyspark:--build-option=--compression=stored"]
        _uv(*from_index, *stored, *_NEEDED, *names_of(packages), environment=environment)
    except subprocess.CalledProcessError:
        print("uv could not install everything: pip does", file=sys.stderr)
        return False
    return True


def _by_pip(packages: Sequence[str]) -> None:
    # Not compiled: most modules of the libraries are never imported, and those that are get compiled then.
    _pip("install", "--no-compile", "-c", "constraints.txt", *_NEEDED)
    _workspace(packages, os.environ)
    _pip("install", "--no-compile", "-c", "constraints.txt", "--no-build-isolation", *names_of(packages))


def _workspace(packages: Sequence[str], environment: Mapping[str, str]) -> None:
    """Build the packages side by side, which asks no index. No cache: uv does not see when compiled sources have changed."""
    places = [word for each in packages for word in ("-e", f"./{each}")]
    _uv("--no-cache", "--offline", "--reinstall", "--no-deps", "--no-build-isolation", *places, environment=environment)


def _uv(*words: str, environment: Mapping[str, str]) -> None:
    command = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--python", sys.executable]
    subprocess.run([*command, *words], check=True, cwd=ROOT, env=environment)


def _pip(verb: str, *words: str) -> None:
    command = [sys.executable, "-m", "pip", verb, "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *words], check=True, cwd=ROOT)


if __name__ == "__main__":
    fill(sys.argv[1:])
