"""The pytest plug-in: turns a contract's lists into tests, and declared weaknesses into expected failures."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from headrace.foundation.errors import HeadraceError, did_you_mean

from headrace_contract.contract import Contract, ContractViolation, checks_of
from headrace_contract.time_limit import ends_within

_DECLARED = "declared weakness: "


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make the tests of checks marked with ``for_each``."""
    each = getattr(metafunc.function, "__headrace_each__", None)
    if each is not None and metafunc.cls is not None:
        argument, attribute = each
        metafunc.parametrize(argument, list(getattr(metafunc.cls, attribute)), ids=str)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the checks of declared weaknesses as expected failures. Such a check that passes is an error.

    Raises UsageError if a declared weakness is not the name of a check.
    """
    for item in items:
        contract = getattr(item, "cls", None)
        if not isinstance(contract, type) or not issubclass(contract, Contract):
            continue
        for name in contract.weaknesses:
            if name not in checks_of(contract):
                hint = did_you_mean(name, checks_of(contract), known="checks")
                raise pytest.UsageError(f"{contract.__name__}.weaknesses: {name!r} is not a check; {hint}")
        reason = contract.weaknesses.get(getattr(item, "originalname", item.name))
        if reason is not None:
            item.add_marker(
                pytest.mark.xfail(reason=f"{_DECLARED}{reason}", strict=True, raises=(ContractViolation, HeadraceError))
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a check that takes longer than ``check_time_max``."""
    contract = getattr(item, "cls", None)
    if not isinstance(contract, type) or not issubclass(contract, Contract):
        return (yield)
    with ends_within(contract.check_time_max.total_seconds()):
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the declared weaknesses that the run has confirmed: they are part of what a plug-in promises."""
    confirmed = [
        report
        for report in terminalreporter.stats.get("xfailed", [])
        if str(getattr(report, "wasxfail", "")).removeprefix("reason: ").startswith(_DECLARED)
    ]
    if confirmed:
        terminalreporter.section("declared weaknesses of headrace plug-ins")
        for report in confirmed:
            reason = str(report.wasxfail).removeprefix("reason: ").removeprefix(_DECLARED)
            terminalreporter.line(f"{report.nodeid}: {reason}")
