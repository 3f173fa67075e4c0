"""What all broken plug-ins have in common."""

from __future__ import annotations

from typing import ClassVar


class Fault:
    """What all broken plug-ins say of themselves."""

    #: The check that must fail.
    breaks: ClassVar[str]
    #: Others that cannot but fail too.
    also: ClassVar[frozenset[str]] = frozenset()
    #: Whether the checks that start processes are run too, although another is to fail.
    thorough: ClassVar[bool] = False
