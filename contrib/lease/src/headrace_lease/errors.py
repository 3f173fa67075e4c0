"""The error of leases, in addition to headrace's errors."""

from __future__ import annotations

from headrace.foundation.errors import HeadraceError


class LeaseLostError(HeadraceError):
    """The caller does not have the lease any more: it expired, was released, or somebody else has it.

    Stop the work that only the holder may do, and acquire the lease again. Repeating the same call does not help,
    because a lost lease stays lost; a new lease has a higher token.
    """
