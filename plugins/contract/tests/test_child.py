"""The process that the checks start."""

from __future__ import annotations

import sys

from headrace_contract.processes import elsewhere


def test_it_imports_no_pytest_for_a_plugin_that_needs_none() -> None:
    """A contract starts a dozen processes, and importing pytest would take a third of the time of each."""

    def imported() -> list[str]:
        return [
            name for name in ("pytest", "headrace_contract.contract", "headrace_contract.tasks") if name in sys.modules
        ]

    assert elsewhere(imported, importable=[], patience_seconds=300) == ["headrace_contract.tasks"]
