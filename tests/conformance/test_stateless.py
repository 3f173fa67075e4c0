"""Every stateless case on every backend: clean, re-batched, and killed at the worst places. Outputs must be equal."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.conformance.case import differences, outputs
from tests.conformance.reference import Reference, by_name, reference_of
from tests.conformance.running import kill_spark_workers, make, run, start
from tests.conformance.stateless_cases import CASES
from tests.effort import often_or_slow, one_in

NAMES = [case.name for case in CASES]
#: The output of a case by its name.
#: Where the process is killed, and the how-manieth time it passes there.
FAULTS = [
    "reader.after_poll:3",
    "lane.after_process:2",
    "sink.before_insert:2",
    "sink.after_insert:1",
    "sink.after_insert:3",
    "checkpoint.after_flush:1",
    "checkpoint.after_save:2",
]
#: In every run; test_stateful.py has the other places, too.
OFTEN = ["reader.after_poll:3", "sink.after_insert:1", "checkpoint.after_flush:1"]
#: Compared with Spark in every run: what crosses to its workers, and what has several sources, sinks or queues. The verbs themselves are
#: those of light, which has every case in every run; the others are compared with Spark in the slow runs.
OFTEN_ON_SPARK = [
    "map-shapes", "map-batches", "script", "functions", "union-of-branches", "several-sinks", "metadata", "bad-records",
    "rules-of-several",
]  # fmt: skip
#: On Spark a worker passes these.
SPARK_FAULTS = ["reader.after_poll:2", "sink.before_insert:1", "sink.after_insert:1"]


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return reference_of(CASES, tmp_path_factory)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_as_many_as_the_case_says(name: str, reference: Reference) -> None:
    found = reference(name)
    assert sum(sum(rows.values()) for rows in found.values()) > 0, "the case writes nothing"
    for sink, count in by_name(CASES, name).expected.items():
        assert sum(found[sink].values()) == count


# What every change runs has half of the cases here, and the other half with other borders below.
@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_records_one_by_one_give_the_same(name: str, tmp_path: Path) -> None:
    # A batch costs the same for one record as for hundreds.
    case = by_name(CASES, name).begun(100)
    run(case, make(tmp_path / "one"), "light", max_batch_records=1)
    run(case, make(tmp_path / "all"), "light")
    assert differences(outputs(tmp_path / "one"), outputs(tmp_path / "all")) == []


@pytest.mark.parametrize("size", [7, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 1000))])
@pytest.mark.parametrize("name", one_in(2, NAMES, begin=1))
def test_output_does_not_depend_on_batch_borders(name: str, size: int, reference: Reference, tmp_path: Path) -> None:
    run(by_name(CASES, name), tmp_path, "light", max_batch_records=size)
    assert differences(outputs(tmp_path), reference(name)) == []


@pytest.mark.spark
@pytest.mark.parametrize("name", often_or_slow(NAMES, OFTEN_ON_SPARK))
def test_spark_gives_what_light_gives(name: str, reference: Reference, tmp_path: Path) -> None:
    run(by_name(CASES, name), tmp_path, "spark")
    assert differences(outputs(tmp_path), reference(name)) == []


# Each place is met by another case, in the slow runs by a third of them; all together would take minutes.
@pytest.mark.parametrize("step", [len(CASES), pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", often_or_slow(FAULTS, OFTEN))
def test_light_killed_at_a_named_place_loses_and_doubles_nothing(
    fault: str, step: int, reference: Reference, tmp_path: Path
) -> None:
    cases = CASES[FAULTS.index(fault) * 4 % step :: step]
    for case in cases:
        case.lay_out(make(tmp_path / case.name))
    killed = 0
    for case in cases:
        killed += start("light", tmp_path, [case.name], fault=f"{fault}:kill") == -signal.SIGKILL
    assert killed >= max(1, len(cases) // 3), "the fault point is hardly ever passed: the test proves nothing"
    assert start("light", tmp_path, [case.name for case in cases]) == 0
    for case in cases:
        assert differences(outputs(tmp_path / case.name), reference(case.name)) == [], case.name


@pytest.mark.spark
@pytest.mark.slow  # one of test_stateful.py is of every run
@pytest.mark.parametrize("fault", SPARK_FAULTS)
def test_spark_workers_killed_at_a_named_place_lose_and_double_nothing(
    fault: str, reference: Reference, tmp_path: Path
) -> None:
    cases = CASES[::8]  # each start of Spark takes seconds
    kill_spark_workers(cases, fault, tmp_path)
    for case in cases:
        assert differences(outputs(tmp_path / case.name), reference(case.name)) == [], case.name


@pytest.mark.spark
@pytest.mark.slow  # what is killed in every run: tests/chaos/test_file_kills.py
def test_spark_driver_killed_at_random_moments_loses_and_doubles_nothing(reference: Reference, tmp_path: Path) -> None:
    rng = random.Random(20261121)
    cases = CASES
    names = [case.name for case in cases]
    for case in cases:
        case.lay_out(make(tmp_path / case.name))
    for _ in range(5):
        assert start("spark", tmp_path, names, kill_after_seconds=rng.uniform(0, 3)) == -signal.SIGKILL
    assert start("spark", tmp_path, names) == 0
    for case in cases:
        assert differences(outputs(tmp_path / case.name), reference(case.name)) == [], case.name
