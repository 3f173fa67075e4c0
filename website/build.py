"""Builds the site: ``python -m website.build [VERSION]`` makes ``site/VERSION``, beside the versions that are there.

``site/`` can be copied to any web server, or opened from the disk: ``site/index.html`` leads to the newest version.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import headrace

ROOT = Path(__file__).resolve().parents[1]


def build_version(version: str, site: Path, *, config: Path = ROOT / "mkdocs.yml") -> Path:
    """Build one version below ``site`` and list it for the theme's version menu. A warning is an error."""
    place = site / version
    # Not --quiet: warnings that are not logged are not counted either.
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(place),
    ]
    # The theme advertises its successor on each build.
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    _list_versions(site)
    return place


def _list_versions(site: Path) -> None:
    """Write what the version menu reads, in the form of ``mike``, and a page that leads to the newest version."""
    found = [path.parent.name for path in site.glob("*/search")]
    versions = sorted(found, key=_numbers, reverse=True)
    listed = [{"version": name, "title": name, "aliases": ["latest"] * (name == versions[0])} for name in versions]
    (site / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    target = f"{versions[0]}/index.html"
    (site / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>headrace</title><meta http-equiv="refresh" content="0; url={target}">'
        f'<a href="{target}">headrace {versions[0]}</a>\n',
        encoding="utf-8",
    )


def _numbers(version: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a key by which 0.10 comes after 0.9, and names such as ``dev`` before all numbers."""
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in version.split("."))


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else headrace.__version__
    sys.stdout.write(f"{build_version(wanted, ROOT / 'site') / 'index.html'}\n")
