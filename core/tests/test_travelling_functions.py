"""A job sends the user functions that it names to other processes, and no others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import cloudpickle
import headrace as hr
import pytest
from headrace.interfaces import functions
from headrace.plan.graph import OperatorNode


@pytest.fixture(autouse=True)
def decorated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two decorated functions, of which one cannot travel."""
    monkeypatch.setattr(functions, "_decorated", dict(functions._decorated))
    lock = threading.Lock()

    @hr.udf(name="travels")
    def travels(value: int) -> int:
        return value + 1

    @hr.udf(name="stays")
    def stays(value: int) -> int:
        with lock:
            return value


def stream() -> hr.Stream:
    schema = {"a": "int64", "b": "int64", "at": "timestamp"}
    return hr.stream("test", "travel").from_file("x", format="json", schema=schema)


JOBS: dict[str, Callable[[], hr.Stream]] = {
    "where": lambda: stream().where("travels(a) > 1"),
    "select": lambda: stream().select("travels(a) AS c"),
    "with_columns": lambda: stream().with_columns(c="travels(a)"),
    "split": lambda: stream().split(one="travels(a) > 1")["one"],
    "script": lambda: stream().script("c = travels(a);"),
    "agg": lambda: stream().key_by("b").agg(n="sum(travels(a))"),
    "window agg": lambda: (
        stream().watermark("at", delay="1 s").key_by("b").window(hr.tumbling("1 min")).agg(n="sum(travels(a))")
    ),
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())
def test_only_functions_that_a_job_names_travel_with_it(job: Callable[[], hr.Stream]) -> None:
    plan = job().to_print().plan()
    copied = cloudpickle.loads(cloudpickle.dumps(plan))
    specs: list[Any] = [node.spec for node in copied.nodes.values() if isinstance(node, OperatorNode)]
    [catalog] = [spec.functions for spec in specs if getattr(spec, "functions", None) is not None]
    assert catalog["travels"](1) == 2
    assert list(catalog.own) == ["travels"]
