"""What a target of the fuzzers is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.foundation.errors import HeadraceError


@dataclass(frozen=True)
class Target:
    """Code that reads bytes from outside.

    ``run`` returns, or raises HeadraceError or one of ``refusals``, whatever it is given; all else is a fault. It also asserts what must
    hold of every input, such as that a body gives the same beside others as alone. ``seeds`` are inputs to begin with.
    """

    name: str
    run: Callable[[bytes], object]
    seeds: Sequence[bytes]
    refusals: tuple[type[Exception], ...] = ()

    @property
    def expected(self) -> tuple[type[Exception], ...]:
        """What ``run`` may raise."""
        return (HeadraceError, *self.refusals)

    def check(self, data: bytes) -> bool:
        """Run it on one input. Returns whether it was taken (False: refused). Raises whatever is a fault."""
        try:
            self.run(data)
        except self.expected:
            return False
        return True
