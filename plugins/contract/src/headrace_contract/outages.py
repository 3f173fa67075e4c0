"""What contracts ask of an author whose plug-in needs a server."""

from __future__ import annotations

from headrace_contract.contract import Contract, optional_hook


class WithOutages(Contract):
    """Base of contracts that check a plug-in while its server is not available."""

    @optional_hook
    def begin_outage(self) -> None:
        """Make the external system (server, broker, directory) unreachable."""
        raise NotImplementedError

    @optional_hook
    def end_outage(self) -> None:
        """Make the external system reachable again; return when it is."""
        raise NotImplementedError
