"""The named patterns that a grok expression can refer to: those of this package, of files, and of the call itself.

A file has a pattern per line: its name, blanks, and its text up to the end of the line, with the blanks there. ``#`` begins
a comment. In the files of this package a line ``@ecs FIELD NAME`` says which field of the Elastic Common Schema a field is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Literal, get_args

import headrace as hr

from headrace_grok.parsing import Definition, refusal

#: How fields of this package's patterns are called.
Names = Literal["legacy", "ecs"]
_NAME = re.compile(r"\w+")


def definitions_of(
    definitions: Mapping[str, str] | str | None = None, files: Iterable[str] = (), names: str = "legacy"
) -> dict[str, Definition]:
    """Return all patterns. If several have one name, one of ``definitions`` is used before one of ``files``, and that
    before one of this package.

    ``definitions`` may be a text as in a file: a pattern per line. ``files`` are paths of files, or of directories whose
    files are all read. Raises OptionError.
    """
    check_choice("names", names, get_args(Names))
    found = dict(_standard(names == "ecs"))
    for file in files:
        found.update(_of_path(Path(file)))
    if isinstance(definitions, str):
        definitions, _ = _read(definitions, "pattern_definitions")
    for name, text in (definitions or {}).items():
        if not _NAME.fullmatch(name):
            raise refusal(f"unusable pattern name {name!r} in pattern_definitions", "use letters, digits and _")
        found[name] = Definition(text)
    return found


def check_choice(option: str, value: str, allowed: Sequence[str]) -> None:
    """Raise OptionError for a value that is not allowed."""
    if value not in allowed:
        expected = " or ".join(map(repr, allowed))
        raise hr.OptionError(f"unknown value {value!r}: expected {expected}", plugin="grok", option=option)


def _of_path(path: Path) -> dict[str, Definition]:
    try:
        paths = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
        texts = {str(each): each.read_text(encoding="utf-8") for each in paths}
    except (OSError, UnicodeDecodeError) as error:
        raise hr.OptionError(
            f"cannot read patterns from {str(path)!r}: {error}", plugin="grok", option="pattern_files"
        ) from error
    found: dict[str, Definition] = {}
    for place, text in texts.items():
        patterns, _ = _read(text, place)
        found.update({name: Definition(pattern) for name, pattern in patterns.items()})
    return found


@functools.cache
def _standard(ecs: bool) -> Mapping[str, Definition]:
    found: dict[str, Definition] = {}
    folder = resources.files("headrace_grok") / "patterns"
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".grok"):
            patterns, renamed = _read(file.read_text(encoding="utf-8"), file.name)
            used = renamed if ecs else {}
            found.update({name: Definition(pattern, used) for name, pattern in patterns.items()})
    return found


def _read(text: str, place: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the patterns of a file, and the ECS names of its fields."""
    patterns: dict[str, str] = {}
    renamed: dict[str, str] = {}
    # Not splitlines(): a pattern may hold characters such as a form feed.
    for number, line in enumerate(text.split("\n"), 1):
        words = line.removesuffix("\r").split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "@ecs" and len(words) == 2:
            old, _, new = words[1].partition(" ")
            renamed[old] = new.strip()
        elif len(words) == 2 and _NAME.fullmatch(words[0]):
            patterns[words[0]] = words[1]
        else:
            raise hr.OptionError(
                f"line {number} of {place} is not a pattern: {line.strip()[:80]!r}",
                plugin="grok",
                option="pattern_definitions" if place == "pattern_definitions" else "pattern_files",
                hint="write a name, a blank and the pattern in each line",
            )
    return patterns, renamed
