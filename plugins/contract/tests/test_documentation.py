"""The page about the suite names every check, and its examples pass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from contract_samples.inner_runs import run_text
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
from headrace_contract.options import OptionChecks

PAGE = Path(__file__).parents[3] / "docs" / "contract-suite.md"
SECTIONS: dict[str, tuple[type[Contract], ...]] = {
    "SinkContract": (SinkContract,),
    "SourceContract": (SourceContract,),
    "GroupSourceContract": (GroupSourceContract,),
    "OperatorContract": (OperatorContract,),
    "FunctionContract": (FunctionContract, TableFunctionContract, AggregateFunctionContract),
    "CodecContract": (CodecContract,),
    "StatefulOperatorContract": (StatefulOperatorContract,),
    "StateStoreContract": (StateStoreContract, KeyedStateStoreContract, ReadableStateStoreContract),
    "TopicsContract": (TopicsContract,),
}
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def section(heading: str) -> str:
    """Return the text below the heading that begins so."""
    (text,) = re.findall(rf"\n## {heading}[^\n]*\n(.*?)(?=\n## |\Z)", PAGE.read_text(), re.DOTALL)
    return str(text)


#: Each starts dozens of processes: they are run with the long tests.
LONG = {"TestTotals", "TestLedger", "TestLines", "TestSpool"}


def _example(text: str) -> Any:
    name = re.findall(r"class (Test\w+)", text)[0]
    return pytest.param(text, id=name, marks=[pytest.mark.slow] if name in LONG else [])


@pytest.mark.parametrize("heading", SECTIONS)
def test_tables_name_every_check(heading: str) -> None:
    options = set(checks_of(OptionChecks))
    named = re.findall(r"^\| `(test_\w+)` \|", section(heading), re.MULTILINE)
    checks = {check for contract in SECTIONS[heading] for check in checks_of(contract)}
    assert sorted(named) == sorted(checks - options)


def test_options_are_named() -> None:
    named = re.findall(r"^\| `(test_\w+)` \|", section("How it fits your tests"), re.MULTILINE)
    assert sorted(named) == checks_of(OptionChecks)


@pytest.mark.parametrize("example", [_example(text) for text in EXAMPLES])
def test_examples_pass(example: str, tmp_path: Path) -> None:
    results = run_text(example, root=tmp_path)
    assert results.code == 0, results.output
    assert len(next(iter(results.passed.values()))) >= 6
