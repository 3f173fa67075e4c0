"""The choices that a generator makes: from a seed, from a list, or from hypothesis, which then can shrink them.

Every choice is an integer with bounds, and the smaller one is the simpler one. A generator that takes all its randomness from
``Choices`` gives the same case for the same choices.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Makes choices and remembers them."""

    def __init__(self, draw: Callable[[int, int], int]) -> None:
        self._draw = draw
        self.made: list[int] = []

    @classmethod
    def of_seed(cls, seed: int) -> Choices:
        """Return choices that depend on the seed only."""
        return cls(random.Random(seed).randint)

    @classmethod
    def of_list(cls, values: Sequence[int]) -> Choices:
        """Return the choices of a list; behind its end, always the simplest."""
        left = iter(values)
        return cls(lambda low, high: min(max(next(left, low), low), high))

    def integer(self, low: int, high: int) -> int:
        """Return an integer from ``low`` to ``high``, both included."""
        if low >= high:
            return low
        value = self._draw(low, high)
        self.made.append(value)
        return value

    def chance(self, percent: int) -> bool:
        """Return True in so many of a hundred cases. False is the simpler one."""
        return self.integer(0, 99) >= 100 - percent

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options. Put the simplest first."""
        return options[self.integer(0, len(options) - 1)]

    def weighted(self, options: Sequence[tuple[int, T]]) -> T:
        """Return one of ``(weight, option)``. Put the simplest first."""
        at = self.integer(0, sum(weight for weight, _ in options) - 1)
        for weight, option in options:
            at -= weight
            if at < 0:
                return option
        raise AssertionError("the weights do not add up")

    def some(self, options: Sequence[T], low: int, high: int) -> list[T]:
        """Return ``low`` to ``high`` of the options, each at most once, in their order."""
        wanted = self.integer(min(low, len(options)), min(high, len(options)))
        left = list(range(len(options)))
        taken = sorted(left.pop(self.integer(0, len(left) - 1)) for _ in range(wanted))
        return [options[at] for at in taken]

    def repeat(self, low: int, high: int, percent: int = 60) -> range:
        """Return a range of ``low`` to ``high`` rounds; each round above ``low`` is there with a chance, so that it can be shrunk."""
        count = low
        while count < high and self.chance(percent):
            count += 1
        return range(count)
