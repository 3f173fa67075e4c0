"""``%%headrace`` in a real kernel, as Jupyter starts it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

jupyter_client = pytest.importorskip("jupyter_client", reason="needs jupyter_client and ipykernel")
pytest.importorskip("ipykernel")

pytestmark = pytest.mark.timeout(300)


class Kernel:
    """A kernel, and what its cells have given."""

    def __init__(self, place: Path) -> None:
        self._manager, self._client = jupyter_client.manager.start_new_kernel(kernel_name="python3", cwd=str(place))

    def run(self, cell: str, *, interrupt_at: str | None = None) -> list[dict[str, Any]]:
        """Run a cell and return its outputs. ``interrupt_at``: interrupt it at the first output of this kind."""
        sent = self._client.execute(cell)
        outputs: list[dict[str, Any]] = []
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            message = self._client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != sent:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return outputs
            if kind in ("stream", "execute_result", "display_data", "update_display_data", "error"):
                outputs.append({"kind": kind, **content})
                if kind == interrupt_at:
                    interrupt_at = None
                    self._manager.interrupt_kernel()
        raise TimeoutError(cell)

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    place = tmp_path_factory.mktemp("notebook")
    rows = [{"k": "ab"[n % 2], "x": n} for n in range(6)]
    (place / "t.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows) + "no JSON\n")
    made = Kernel(place)
    assert [each["kind"] for each in made.run("%load_ext headrace_shell")] == []
    defined = "%%headrace\nCREATE TABLE t (k STRING, x BIGINT) WITH ('connector' = 'filesystem', 'path' = 't.ndjson', 'format' = 'json')"
    assert made.run(defined) == []
    yield made
    made.close()


def texts(outputs: list[dict[str, Any]]) -> str:
    return "".join(each.get("text", "") or each.get("data", {}).get("text/plain", "") for each in outputs)


def test_rows_are_the_result_and_dead_letters_are_told(kernel: Kernel) -> None:
    outputs = kernel.run("%%headrace\nSELECT k, SUM(x) AS total FROM t GROUP BY k")
    (result,) = [each for each in outputs if each["kind"] == "execute_result"]
    assert "<table" in result["data"]["text/html"]
    assert "6 " in texts(outputs)
    assert "1 became dead letters" in texts(outputs)
    assert "dead-letters" in texts(outputs)


def test_rows_become_a_variable_and_variables_go_into_texts(kernel: Kernel) -> None:
    kernel.run("least = 3")
    assert "execute_result" not in [
        each["kind"] for each in kernel.run("%%headrace --into found\nSELECT x FROM t WHERE x >= ${least}")
    ]
    assert "[3, 4, 5]" in texts(kernel.run("sorted(found['x'].to_list())"))


def test_frames_of_the_notebook_are_tables(kernel: Kernel) -> None:
    kernel.run("import headrace as hr, polars as pl\nhr.register('mine', pl.DataFrame({'a': [41]}))")
    assert "42" in texts(kernel.run("%%headrace\nSELECT a + 1 AS b FROM mine"))
    assert "[6]" in texts(kernel.run("hr.sql('SELECT COUNT(*) AS n FROM t').collect()['n'].to_list()"))


def test_mistakes_show_the_place_in_the_text(kernel: Kernel) -> None:
    told = texts([each for each in kernel.run("%%headrace\nSELECT y FROM t") if each["kind"] == "stream"])
    assert "unknown column 'y'" in told
    assert "^" in told


def test_a_picture_of_a_running_aggregate_is_drawn_anew_until_the_cell_is_interrupted(kernel: Kernel) -> None:
    text = "%%headrace --plot --x k --y total --until never --into last\nSELECT k, SUM(x) AS total FROM t GROUP BY k"
    outputs = kernel.run(text, interrupt_at="display_data")
    kinds = [each["kind"] for each in outputs]
    assert "error" not in kinds
    first = kinds.index("display_data")
    assert "image/png" in outputs[first]["data"]
    assert "image/png" in outputs[kinds.index("update_display_data")]["data"]
    assert "[6, 9]" in texts(kernel.run("sorted(last['total'].to_list())"))


def test_a_picture_needs_numbers(kernel: Kernel) -> None:
    told = texts(kernel.run("%%headrace --plot --y nothing\nSELECT k, x FROM t"))
    assert "no column 'nothing'" in told


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_cell_runs_on_spark(kernel: Kernel) -> None:
    kernel.run("%%headrace --backend spark --into totals\nSELECT k, SUM(x) AS total FROM t GROUP BY k")
    assert "[6, 9]" in texts(kernel.run("sorted(totals['total'].to_list())"))
