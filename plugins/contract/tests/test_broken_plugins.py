"""Each check fails a plug-in that is broken in just that way; and no check is without such a plug-in."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from contract_samples.inner_runs import SAMPLES, Results, run
from headrace_contract import (
    AggregateFunctionContract,
    CodecContract,
    Contract,
    FunctionContract,
    OperatorContract,
    SinkContract,
    SourceContract,
    TableFunctionContract,
    checks_of,
)

MODULES: Mapping[str, tuple[type[Contract], ...]] = {
    "broken_sinks": (SinkContract,),
    "broken_sources": (SourceContract,),
    "broken_operators": (OperatorContract,),
    "broken_functions": (FunctionContract, TableFunctionContract, AggregateFunctionContract),
    "broken_codecs": (CodecContract,),
}


def broken_in(module: str) -> dict[str, Any]:
    """Return the broken contracts of a module by name."""
    found = vars(importlib.import_module(f"contract_samples.{module}"))
    return {name: kind for name, kind in found.items() if name.startswith("Broken")}


CASES = [(module, name) for module in MODULES for name in broken_in(module)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Results]]:
    """What became of each module's checks; each module is run once, when a test first asks for it."""

    class Runs(dict[str, Results]):
        def __missing__(self, module: str) -> Results:
            self[module] = run(Path(SAMPLES, f"{module}.py"), root=tmp_path_factory.mktemp(module))
            return self[module]

    return Runs()  # type: ignore[return-value]


@pytest.mark.parametrize(("module", "name"), CASES, ids=[name for _, name in CASES])
def test_fails_just_its_check(module: str, name: str, results: dict[str, Results]) -> None:
    broken, failed = broken_in(module)[name], results[module].failed.get(name, {})
    assert set(failed) == {broken.breaks, *broken.also}, results[module].output
    for text in failed[broken.breaks]:
        assert "expected: " in text, text
        assert "mend: " in text, text


def test_every_check_has_a_broken_plugin() -> None:
    broken = {getattr(kind, kind.breaks) for module in MODULES for kind in broken_in(module).values()}
    without = [
        f"{contract.__name__}.{check}"
        for contracts in MODULES.values()
        for contract in contracts
        for check in checks_of(contract)
        if getattr(contract, check) not in broken
    ]
    assert without == []


def test_every_check_says_what_it_does() -> None:
    for contracts in MODULES.values():
        for contract in contracts:
            for check in checks_of(contract):
                text = " ".join((getattr(contract, check).__doc__ or "").split())
                assert "Steps: " in text, check
                assert "Passes when" in text, check
