"""What leases raise beside the errors of headrace."""

from __future__ import annotations

from headrace.foundation.errors import HeadraceError


class LeaseLostError(HeadraceError):
    """The caller does not have the lease any more: it expired, was released, or somebody else has it.

    Stop what only the holder may do, and acquire the lease again. Retrying the same call does not help: a lost lease never
    comes back, a new one has a higher token.
    """
