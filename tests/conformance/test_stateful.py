"""Every case with keyed state on every backend: clean, re-batched, and killed at the worst places. Outputs must be equal."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.conformance.case import differences, outputs
from tests.conformance.reference import Reference, by_name, reference_of
from tests.conformance.running import kill_spark_workers, make, run, start
from tests.conformance.stateful_cases import CASES
from tests.effort import examples, often_or_slow, one_in

NAMES = [case.name for case in CASES]
#: Compared with Spark in every run: one of each kind of state, time and changes. The verbs themselves are those of light, which
#: has every case in every run; the others are compared with Spark in the slow runs.
OFTEN_ON_SPARK = [
    "late", "sessions-late", "window-on-window", "with-state", "join-within", "changes-of-changes", "correlations", "joins-window",
    "changes-aggregated", "changes-that-come-again",
]  # fmt: skip
#: Where the process is killed, and the how-manieth time it passes there.
FAULTS = [
    "reader.after_poll:4",
    "lane.after_process:3",
    "shard.after_process:5",
    "sink.before_insert:2",
    "sink.after_insert:2",
    "checkpoint.after_flush:2",
    "shard.after_save:2",
    "checkpoint.after_save:2",
]
#: On Spark a worker passes these.
SPARK_FAULTS = ["lane.after_process:1", "shard.after_process:1", "sink.after_insert:1"]


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return reference_of(CASES, tmp_path_factory)


@pytest.mark.parametrize("name", NAMES)
def test_every_sink_gets_rows(name: str, reference: Reference) -> None:
    for sink, rows in reference(name).items():
        assert rows, f"the case writes nothing to {sink}"


# What every change runs has half of the cases here, and the other half with other borders below.
@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_records_one_by_one_give_the_same(name: str, tmp_path: Path) -> None:
    # A batch costs the same for one record as for hundreds.
    case = by_name(CASES, name).begun(max(40, examples(80)))
    run(case, make(tmp_path / "one"), "light", max_batch_records=1, shards=3)
    run(case, make(tmp_path / "all"), "light")
    assert differences(outputs(tmp_path / "one"), outputs(tmp_path / "all")) == []


@pytest.mark.parametrize(
    ("size", "shards"),
    [
        (23, 2),
        *(pytest.param(size, shards, marks=pytest.mark.slow) for size, shards in ((1, 3), (7, 1), (7, 2), (1000, 2))),
    ],
)
@pytest.mark.parametrize("name", one_in(2, NAMES, begin=1))
def test_output_does_not_depend_on_batch_borders_or_shards(
    name: str, size: int, shards: int, reference: Reference, tmp_path: Path
) -> None:
    run(by_name(CASES, name), tmp_path, "light", max_batch_records=size, shards=shards)
    assert differences(outputs(tmp_path), reference(name)) == []


@pytest.mark.spark
@pytest.mark.parametrize("name", often_or_slow(NAMES, OFTEN_ON_SPARK))
def test_spark_gives_what_light_gives(name: str, reference: Reference, tmp_path: Path) -> None:
    run(by_name(CASES, name), tmp_path, "spark")
    assert differences(outputs(tmp_path), reference(name)) == []


# Each place is met by another case, in the slow runs by a quarter of them; all together would take minutes.
@pytest.mark.parametrize("step", [len(CASES), pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", FAULTS)
def test_light_killed_at_a_named_place_loses_and_doubles_nothing(
    fault: str, step: int, reference: Reference, tmp_path: Path
) -> None:
    cases = CASES[FAULTS.index(fault) * 5 % step :: step]
    for case in cases:
        case.lay_out(make(tmp_path / case.name))
    killed = 0
    for case in cases:
        killed += start("light", tmp_path, [case.name], fault=f"{fault}:kill") == -signal.SIGKILL
    assert killed, "the fault point is never passed: the test proves nothing"
    assert start("light", tmp_path, [case.name for case in cases]) == 0
    for case in cases:
        assert differences(outputs(tmp_path / case.name), reference(case.name)) == [], case.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["changes-in-windows", "changes-aggregated"])
def test_light_killed_at_all_places_in_one_history(name: str, reference: Reference, tmp_path: Path) -> None:
    """Each run begins where the one before was killed."""
    by_name(CASES, name).lay_out(make(tmp_path / name))
    for fault in FAULTS:
        at = f"{fault.partition(':')[0]}:2:kill"
        assert start("light", tmp_path, [name], fault=at) == -signal.SIGKILL, f"{at} is never passed"
    assert start("light", tmp_path, [name]) == 0
    assert differences(outputs(tmp_path / name), reference(name)) == []


@pytest.mark.spark
# In every run workers are killed around their state by plugins/spark/tests/test_spark_keyed.py.
@pytest.mark.slow
@pytest.mark.parametrize("fault", SPARK_FAULTS)
def test_spark_workers_killed_at_a_named_place_lose_and_double_nothing(
    fault: str, reference: Reference, tmp_path: Path
) -> None:
    cases = CASES[::8]  # each start of Spark takes seconds
    kill_spark_workers(cases, fault, tmp_path)
    for case in cases:
        assert differences(outputs(tmp_path / case.name), reference(case.name)) == [], case.name
