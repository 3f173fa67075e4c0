"""Shrinking the choices of a failing case with hypothesis, to the simplest case that fails in a like manner."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase, choices_to_bytes

from tests.differential.choices import Choices


class _OneExample(ExampleDatabase):
    """Gives hypothesis one list of choices to begin with, as one that was not shrunk yet: those have a key of their own."""

    def __init__(self, choices: Sequence[int]) -> None:
        super().__init__()
        self._kept = choices_to_bytes(tuple(choices))

    def fetch(self, key: bytes) -> Iterable[bytes]:
        if key.endswith(b".secondary"):
            yield self._kept

    def save(self, key: bytes, value: bytes) -> None:
        """Keep nothing."""

    def delete(self, key: bytes, value: bytes) -> None:
        """Forget nothing."""


def kind_of(problem: str) -> str:
    """Return what a problem is in one line, without names and numbers: a difference, or an exception and where it comes from."""
    found = re.search(r"because of (.{0,60})|raised (.{0,60})|(taken back)", problem.rpartition("\n\n")[2])
    return re.sub(r"[\d'\"_]+|a\d+", "", found[0]) if found else "difference"


def shrunk(
    choices: Sequence[int], problem_of: Callable[[Choices], str | None], *, tries: int = 600
) -> tuple[list[int], str]:
    """Return the simplest choices found for which ``problem_of`` gives a problem of the same kind, and that problem.

    ``tries`` bounds how many cases are run. Raises ValueError when the choices give no problem.
    """
    first = problem_of(Choices.of_list(choices))
    if first is None:
        raise ValueError("these choices give no problem")
    wanted = kind_of(first)
    best: list[tuple[list[int], str]] = [(list(choices), first)]
    left = [tries]

    @settings(
        database=_OneExample(choices), phases=(Phase.reuse, Phase.shrink), max_examples=10_000, deadline=None,
        suppress_health_check=list(HealthCheck), print_blob=False, report_multiple_bugs=False,
    )  # fmt: skip
    @given(st.data())
    def fails(data: st.DataObject) -> None:
        if left[0] <= 0:
            return
        left[0] -= 1
        made = Choices(lambda low, high: data.draw(st.integers(low, high)))
        problem = problem_of(made)
        if problem is not None and kind_of(problem) == wanted:
            if len(made.made) <= len(best[0][0]):
                best[0] = (made.made, problem)
            raise AssertionError(wanted)

    # Hypothesis raises the failure again, or that it is flaky when the tries are used up.
    with contextlib.suppress(Exception):
        fails()
    return best[0]
