"""What the cases give on the light backend, run clean in one go: all other runs are compared with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import pytest

from tests.conformance.case import Case, outputs
from tests.conformance.running import run

Reference = Callable[[str], Mapping[str, Counter[str]]]


def by_name(cases: Sequence[Case], name: str) -> Case:
    """Return the case of a name."""
    return next(case for case in cases if case.name == name)


def reference_of(cases: Sequence[Case], directories: pytest.TempPathFactory) -> Reference:
    """Return a function that gives the output of a case by its name; each case is run once."""

    @cache
    def output_of(name: str) -> Mapping[str, Counter[str]]:
        directory = directories.mktemp(f"reference-{name}")
        run(by_name(cases, name), directory, "light")
        return outputs(directory)

    return output_of
