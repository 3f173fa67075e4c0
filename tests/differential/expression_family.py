"""Random expressions by the thousand: every function, operator and cast over hostile rows.

``python -m tests.differential.expression_family --seeds 0:20000`` runs many expressions a seed and sums up what differs by
kind; ``make fuzz`` runs a few beside its jobs. A difference is shrunk to its smallest part and to one row where one shows it.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from dataclasses import dataclass
from typing import TypeVar

import polars as pl
from headrace_columnar import registry
from headrace_columnar.expressions import compile_expression

from tests.differential import expression_oracles as oracles
from tests.differential import expression_values as values
from tests.differential.choices import Choices
from tests.differential.expression_checks import Difference, check
from tests.differential.expression_trees import SCHEMA, Chance, Grower, Part
from tests.differential.families import Family

T = TypeVar("T")
#: Expressions of a seed, and rows that each is evaluated over.
EXPRESSIONS, ROWS = 12, 8
#: Expressions of a seed of ``make fuzz``.
FEW = 3


class ChanceOfChoices:
    """Choices under the names that ``random.Random`` has for them."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def random(self) -> float:
        return self._choices.integer(0, 999) / 1000

    def randint(self, low: int, high: int) -> int:
        return self._choices.integer(low, high)

    def choice(self, options: Sequence[T]) -> T:
        return self._choices.pick(options)

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        return self._choices.some(options, count, count)

    def shuffle(self, options: MutableSequence[T]) -> None:
        for place in range(len(options) - 1, 0, -1):
            other = self._choices.integer(0, place)
            options[place], options[other] = options[other], options[place]


@dataclass(frozen=True)
class Case:
    """Expressions, each with its rows, and a seed for what the relations choose."""

    expressions: tuple[tuple[Part, pl.DataFrame], ...]
    seed: int


def case_of(chance: Chance, turn: int, count: int) -> Case:
    """Make a case. ``turn`` names the function that it begins with, so that each has its turn."""
    names = sorted(registry.load())
    grower = Grower(chance)
    first = grower.call(names[turn % len(names)])
    made = [first[0]] if first is not None else []
    growing = grower.grow()
    while len(made) < count:
        made.append(next(growing)[0])
    return Case(
        tuple((part, values.rows(chance, ROWS, set(part.columns))) for part in made), chance.randint(0, 2**31 - 1)
    )


def run_one(part: Part, frame: pl.DataFrame, chance: random.Random) -> None:
    """Check one expression. Raises Difference; any other exception is made one."""
    text = part.text()
    try:
        outcomes = check(part, compile_expression(text, SCHEMA), frame, chance)
        oracles.check(part, frame, outcomes)
    except Difference:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        trace = "".join(traceback.format_exception(error)[-3:])
        raise Difference(
            "raises", text, frame.rows(named=True), f"{type(error).__name__}: {error}\n{trace}", ""
        ) from error


def differences(case: Case) -> Iterator[Difference]:
    """Yield what does not hold of the case, shrunk."""
    for part, frame in case.expressions:
        try:
            run_one(part, frame, random.Random(case.seed))
        except Difference as found:
            yield shrunk(part, frame, case.seed) or found


def shrunk(part: Part, frame: pl.DataFrame, seed: int) -> Difference | None:
    """Return the difference of the smallest part and the fewest rows that show one."""
    for inner in part.operands:
        found = shrunk(inner, frame, seed) if inner.operation != "column" else None
        if found is not None:
            return found
    for rows in [*(frame[row : row + 1] for row in range(frame.height)), frame]:
        try:
            run_one(part, rows, random.Random(seed))
        except Difference as found:
            return found
    return None


def _generate(choices: Choices) -> Case:
    return case_of(ChanceOfChoices(choices), choices.integer(0, len(registry.load()) - 1), FEW)


def _check(case: Case) -> str | None:
    return "\n\n".join(map(str, differences(case))) or None


def _describe(case: Case) -> str:
    return "\n".join(
        f"{part.text()}\n" + "\n".join(f"    {row}" for row in frame.rows(named=True))
        for part, frame in case.expressions
    )


FAMILY = Family("expressions", _generate, _check, _describe, weight=3)


def run(seeds: range, report: Callable[[int, Difference], None], deadline: float | None = None) -> int:
    """Run the seeds; return how many expressions were checked."""
    count = 0
    for seed in seeds:
        if deadline is not None and time.monotonic() > deadline:
            break
        case = case_of(random.Random(seed), seed, EXPRESSIONS)
        count += len(case.expressions)
        for found in differences(case):
            report(seed, found)
    return count


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="from:to, or one seed")
    parser.add_argument("--seconds", type=float, help="stop behind the seed at which so much time is over")
    options = parser.parse_args(arguments)
    begin, _, end = options.seeds.partition(":")
    seeds = range(int(begin), int(end) if end else int(begin) + 1)
    seen: collections.Counter[str] = collections.Counter()

    def report(seed: int, found: Difference) -> None:
        kind = f"{found.relation} | {found.found.splitlines()[0][:60] if found.found else ''}"
        seen[kind] += 1
        if seen[kind] <= 3:
            print(f"seed {seed}: {found}\n", flush=True)

    begun = time.monotonic()
    count = run(seeds, report, None if options.seconds is None else begun + options.seconds)
    print(f"{count} expressions, {sum(seen.values())} differences in {time.monotonic() - begun:.0f} s")
    for kind, times in seen.most_common():
        print(f"  {times:5} {kind}")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
