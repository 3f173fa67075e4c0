"""How contracts behave in a run: declared weaknesses, methods left out, lists that become tests, messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from contract_samples.inner_runs import Results, run_text
from contract_samples.sink_contracts import LineContract
from headrace_contract import Contract, ContractViolation, FunctionContract, checks_of
from headrace_contract.contract import expect

FUNCTION = """
from headrace.interfaces.functions import ScalarFunction
from headrace.flow.schema import data_type
from headrace_contract import FunctionContract

class TestShout(FunctionContract):
    cases = [(("hey",), "HEY!")]
    {line}

    def make_function(self):
        return ScalarFunction({name!r}, lambda text: text and text.upper() + "!", data_type("string"))
"""


def _run(tmp_path: Path, *, name: str = "shout", line: str = "pass") -> Results:
    return run_text(FUNCTION.format(name=name, line=line), root=tmp_path)


def test_healthy_function_passes(tmp_path: Path) -> None:
    results = _run(tmp_path)
    assert results.code == 0, results.output
    assert results.passed["TestShout"] == set(checks_of(FunctionContract))


def test_weakness_is_expected_and_shown(tmp_path: Path) -> None:
    results = _run(tmp_path, name="my shout", line='weaknesses = {"test_name_fits_sql": "only used from Python"}')
    assert results.code == 0, results.output
    assert "declared weaknesses of headrace plug-ins" in results.output
    assert "test_name_fits_sql: only used from Python" in results.output


def test_weakness_that_is_gone_fails(tmp_path: Path) -> None:
    results = _run(tmp_path, line='weaknesses = {"test_name_fits_sql": "only used from Python"}')
    assert list(results.failed["TestShout"]) == ["test_name_fits_sql"]
    assert "XPASS" in results.output


def test_weakness_hides_no_other_error(tmp_path: Path) -> None:
    line = 'weaknesses = {"test_name_fits_sql": "x"}\n    function = lambda self: 1 / 0'
    results = _run(tmp_path, line=line)
    assert "test_name_fits_sql" in results.failed["TestShout"]
    assert "ZeroDivisionError" in results.failed["TestShout"]["test_name_fits_sql"][0]


def test_unknown_weakness_is_named(tmp_path: Path) -> None:
    results = _run(tmp_path, line='weaknesses = {"test_name_fits_sq": "x"}')
    assert results.code == pytest.ExitCode.USAGE_ERROR
    assert "did you mean 'test_name_fits_sql'?" in results.output


def test_methods_left_out_are_named(tmp_path: Path) -> None:
    results = run_text(
        "from contract_samples.codec_contracts import ArrayContract\n\nclass TestArrays(ArrayContract):\n    pass\n",
        root=tmp_path,
    )
    assert results.code == 0, results.output
    assert (
        "not checked: TestArrays does not implement make_with_secret()"
        in results.skipped["TestArrays"]["test_secrets_stay_hidden"]
    )


def test_lists_become_tests(tmp_path: Path) -> None:
    results = run_text(
        "from contract_samples.codec_contracts import ArrayContract\n\n"
        "class TestArrays(ArrayContract):\n    types = ('int8', 'float32')\n",
        "-vv",
        root=tmp_path,
    )
    assert results.code == 0, results.output
    for kind in ("int8", "float32"):
        assert f"test_values_of_type[{kind}] PASSED" in results.output
    assert "test_values_of_type[string]" not in results.output


def test_violation_says_what_to_mend() -> None:
    with pytest.raises(ContractViolation) as caught:
        expect(1 > 2, expected="more", found="less", mend="add something")
    assert str(caught.value).split("\n")[1:] == ["  expected: more", "  but:      less", "  mend:     add something"]


def test_eventually_gives_up() -> None:
    class Impatient(Contract):
        patience = Contract.patience / 1000

    with pytest.raises(ContractViolation, match=r"after 0.03 s it is still \[\]"):
        Impatient().eventually(list, expected="something", mend="give something")


def test_plugin_is_light() -> None:
    """pytest loads the plug-in in every run of everybody who has it installed."""
    code = "import sys, headrace_contract.pytest_plugin; print('polars' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_rows_that_changed_are_shown_with_what_they_became(tmp_path: Path) -> None:
    class Lossy(LineContract):
        def read_rows(self) -> list[dict[str, object]]:
            return [{"id": 1, "text": "short"}]

    contract = Lossy()
    contract.begin(tmp_path)
    with pytest.raises(ContractViolation) as caught:
        contract.expect_rows([{"id": 1, "text": "shorter than it was"}], mend="do not cut texts")
    assert "1 rows are missing: {'id': 1, 'text': 'shorter than it was'}" in caught.value.found
    assert "1 rows were never written, or are changed: {'id': 1, 'text': 'short'}" in caught.value.found
