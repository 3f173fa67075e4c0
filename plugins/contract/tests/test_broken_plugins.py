"""Each check fails a plug-in that is broken in just that way; and no check is without such a plug-in."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from contract_samples.broken import Fault
from contract_samples.inner_runs import SAMPLES, run
from headrace_contract import (
    AggregateFunctionContract,
    CodecContract,
    Contract,
    FunctionContract,
    GroupSourceContract,
    KeyedStateStoreContract,
    OperatorContract,
    ReadableStateStoreContract,
    SinkContract,
    SourceContract,
    StatefulOperatorContract,
    StateStoreContract,
    TableFunctionContract,
    TopicsContract,
    checks_of,
)

MODULES: Mapping[str, tuple[type[Contract], ...]] = {
    "broken_sink_options": (SinkContract,),
    "broken_sink_values": (SinkContract,),
    "broken_sink_guarantees": (SinkContract,),
    "broken_sink_crashes": (SinkContract,),
    "broken_sink_runtime": (SinkContract,),
    "broken_sources": (SourceContract,),
    "broken_group_sources": (GroupSourceContract,),
    "broken_operators": (OperatorContract,),
    "broken_functions": (FunctionContract, TableFunctionContract, AggregateFunctionContract),
    "broken_codecs": (CodecContract,),
    "broken_state_stores": (StateStoreContract, KeyedStateStoreContract, ReadableStateStoreContract),
    "broken_stateful_operators": (StatefulOperatorContract,),
    "broken_topics": (TopicsContract,),
}
#: Each of these waits for something that never comes, or starts many processes: they are run with the long tests.
LONG = {
    "broken_topics", "broken_sources", "broken_group_sources", "broken_sink_crashes", "broken_stateful_operators",
    "broken_state_stores", "broken_sink_values",
}  # fmt: skip


def broken_in(module: str) -> dict[str, Any]:
    """Return the broken contracts of a module by name."""
    found = vars(importlib.import_module(f"contract_samples.{module}"))
    return {name: kind for name, kind in found.items() if name.startswith("Broken") and issubclass(kind, Fault)}


@pytest.mark.timeout(900)  # a hundred checks and more in each
@pytest.mark.parametrize("one_in", [24, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "module", [pytest.param(module, marks=[pytest.mark.slow] if module in LONG else []) for module in MODULES]
)
def test_broken_plugins_fail_just_their_checks(module: str, one_in: int, tmp_path: Path) -> None:
    results = run(SAMPLES / f"{module}.py", root=tmp_path, one_in=one_in)
    wrong = []
    for name, broken in broken_in(module).items():
        failed = results.failed.get(name, {})
        if set(failed) != {broken.breaks, *broken.also}:
            wrong.append(f"{name} fails {sorted(failed)} instead of {sorted({broken.breaks, *broken.also})}")
        wrong += [
            f"{name}: a message without what to mend: {text}"
            for text in failed.get(broken.breaks, [])
            if "expected: " not in text or "mend: " not in text
        ]
    assert not wrong, "\n".join([*wrong, results.output])


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
