"""The command that writes a page of the documentation that is made from code, or says whether the page is up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def run(module: str, about: str | None, default: str, page: Callable[[], str], arguments: Sequence[str] | None) -> int:
    """Write ``page()`` to the file that ``arguments`` name; with ``--check`` return 1 if that file has another text.

    Called by the ``main`` of modules that make pages. ``default``: the file where none is named.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("path", type=Path, nargs="?", default=Path(default))
    parser.add_argument("--check", action="store_true", help="do not write; exit with 1 if the file is out of date")
    options = parser.parse_args(arguments)
    path: Path = options.path
    text = page()
    if options.check:
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path} is out of date; run python -m {module}", file=sys.stderr)
            return 1
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return 0
