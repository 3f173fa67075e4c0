"""Fixtures of every test in the workspace: real servers, started when a test first asks for one; and the order of the files."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests.effort import SELDOM_KILLED, examples

pytest_plugins = ["tests.servers.fixtures"]

# How long an example takes says how busy the machine is.
settings.register_profile(
    "without time", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(100)
)
settings.load_profile("without time")

# Tests are made of millions of small objects that all stay. Looking for garbage among them takes longer than making them.
gc.disable()

_ROOT = Path(__file__).parent
#: Parts of the paths of files whose tests take long, beside those that start Spark.
_LONG = (
    "/chaos/",
    "/savepoints/",
    "/conformance/",
    "/documentation/",
    "/differential/",
    "/edge/",
    "/packaging/",
    "/simulation/",
    "/light/tests/",
    "/server/tests/",
    "/shell/tests/",
    "/test_flink_cases.py",
    "/console/tests/test_docs.py",
    "/test_broken_plugins.py",
    "/test_documentation.py",
    "/test_contracts.py",
    "/test_http_source.py",
    "/test_sink_crashes.py",
)
#: Tests of jobs make many objects that stay until the job ends: with Python's own limits a tenth of their time is the search for garbage.
_COLLECTOR_THRESHOLDS = (20_000, 20, 50)


@pytest.hookimpl(specname="pytest_collection_modifyitems", tryfirst=True)
def pytest_mark_seldom_kills(items: list[pytest.Item]) -> None:
    """Mark the kills that only the slow runs have, before pytest chooses by marks."""
    for item in items:
        if SELDOM_KILLED.search(item.name):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files that take long first: test processes take whole files, and should not wait for the last one of them.

    Files of one folder wait for the same things, or need the processor all the time: the long ones are mixed, in the same way each time,
    so that the processes do not do the same at once.
    """
    long = {item.path for item in items if item.get_closest_marker("spark")}
    long |= {path for path in {item.path for item in items} if any(part in str(path) for part in _LONG)}
    places = {
        path: (path not in long, crc32(os.path.relpath(path, _ROOT).encode()) if path in long else 0)
        for path in {item.path for item in items}
    }
    items.sort(key=lambda item: places[item.path])


@pytest.fixture(scope="session", autouse=True)
def _directory_of_java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start Spark's Java in a directory that stays: it outlives the test that starts it, and the directory of that test."""
    if any(item.get_closest_marker("spark") for item in request.session.items):
        from pyspark import java_gateway

        module: Any = java_gateway
        module.Popen = partial(Popen, cwd=tmp_path_factory.mktemp("java"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Let a test fail that starts a Spark and is not marked ``spark``: `make test` runs those in one process, for one Spark."""
    ran = _spark_runs()
    yield
    if _spark_runs() and not ran and not item.get_closest_marker("spark"):
        pytest.fail("this test starts a Spark: mark it with pytest.mark.spark")


def _spark_runs() -> bool:
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


def pytest_collection_finish() -> None:
    """Look for garbage again, but never among the collected tests."""
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    gc.enable()
