"""What is wrong with a pipeline file, and where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.foundation.errors import JobError
from headrace.foundation.secrecy import is_secret_name, masked

#: A key and its value: in separate lines, and within braces.
_KEYED = re.compile(r"""["']?(?P<key>[\w.\-]+)["']?\s*:(?P<value>.*)$""")
_LENGTH_MAX = 140


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file, counted from 0."""

    line: int
    column: int


class PipelineError(JobError):
    """A pipeline file is wrong at a place. ``line`` and ``column`` count from 1; ``str()`` shows the line, without secrets.

    ``until``: where the shown part of the line ends.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str,
        place: Place | None = None,
        lines: Sequence[str] = (),
        hint: str | None = None,
        option: str | None = None,
        plugin: str | None = None,
        job: str | None = None,
        until: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, option=option, plugin=plugin, job=job)
        self.file = file
        self.line = None if place is None else place.line + 1
        self.column = None if place is None else place.column + 1
        self.shown = None if place is None else _shown(lines, place.line, until)

    def __str__(self) -> str:
        head, sign, hint = super().__str__().partition("\n  hint: ")
        if self.line is None or self.column is None:
            return f"{self.file}: {head}{sign}{hint}"
        text = f"{self.file}, line {self.line}, column {self.column}: {head}"
        if self.shown and self.shown.strip() and self.column <= _LENGTH_MAX:
            text += f"\n    {self.shown[:_LENGTH_MAX]}\n    {' ' * (self.column - 1)}^"
        return text + sign + hint


class SeveralErrors(PipelineError):
    """Several parts of a pipeline file are wrong: ``errors``, in their order. Its own place is that of the first."""

    def __init__(self, errors: Sequence[PipelineError]) -> None:
        first = errors[0]
        super().__init__(f"{len(errors)} parts are wrong", file=first.file)
        self.errors = tuple(errors)
        self.line, self.column, self.shown = first.line, first.column, first.shown

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


def all_of(errors: Sequence[PipelineError]) -> PipelineError:
    """Return one error for all that is wrong; there is at least one."""
    each = [one for error in errors for one in (error.errors if isinstance(error, SeveralErrors) else [error])]
    return each[0] if len(each) == 1 else SeveralErrors(each)


def _shown(lines: Sequence[str], at: int, until: int | None) -> str:
    """Return a line of the file. The value of a secret option is replaced by stars, also if it is on the line after its
    key.
    """
    if at >= len(lines):
        return ""
    line = masked(lines[at].replace("\t", " "))
    if until is not None and until < len(line):
        line = line[:until] + "…"
    before = next((each for each in reversed(lines[:at]) if each.strip()), "")
    opened = _KEYED.search(before)
    if opened is not None and is_secret_name(opened["key"]) and opened["value"].strip() in ("", "|", ">", "|-", ">-"):
        return _stars(line, len(line) - len(line.lstrip()))
    for found in re.finditer(r"""["']?([\w.\-]+)["']?\s*:""", line):
        if is_secret_name(found[1]):
            return _stars(line, found.end())
    return line


def _stars(line: str, at: int) -> str:
    return line[:at] + re.sub(r"\S", "*", line[at:])
