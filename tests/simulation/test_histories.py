"""Histories of jobs with faults: nothing is lost, nothing comes twice, and each can be replayed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from headrace_light.shared import stages

from tests.effort import examples
from tests.simulation.__main__ import seeds_until_found
from tests.simulation.histories import FAULTS, Fault, history_of
from tests.simulation.instances import Event, run_shared, shared_history_of
from tests.simulation.jobs import SHAPES, make_input
from tests.simulation.jobs_beside import ALL_SHAPES
from tests.simulation.mutations import MUTATIONS
from tests.simulation.running import run

ROOT = Path(__file__).resolve().parents[2]
#: How many histories this run tries: as many as fit into a few seconds of a processor. `make simulate` runs others.
_SEEDS = examples(200)
_PARTS = 8
_SHARED_SEEDS = examples(50)


@pytest.mark.parametrize("part", range(_PARTS))
def test_histories_break_no_rule(part: int) -> None:
    for seed in range(part, _SEEDS, _PARTS):
        outcome = run(history_of(seed))
        assert not outcome.wrong, f"{outcome.history}\nmake simulate SEEDS=={seed}\n" + "\n".join(outcome.wrong)


def test_generated_histories_have_every_shape_sink_and_fault() -> None:
    histories = [history_of(seed) for seed in range(64)]
    assert {each.shape for each in histories} == set(ALL_SHAPES)
    assert {each.sink for each in histories} == {"transactional", "file", "keyed", "plain"}
    assert {fault.kind for each in histories for fault in each.faults} == FAULTS


def test_a_seed_replays_byte_for_byte_in_another_process() -> None:
    """Whatever the order of sets there: the hashes of texts differ between processes.

    Both processes are new ones: what earlier tests of this process have left in caches changes how often a seam is passed.
    """
    seeds = (24, 76)
    program = (
        "from tests.simulation.__main__ import run_instances, run_seed\n"
        f"print(*(run_seed(seed).trace.digest() for seed in {seeds}), *(run_instances(seed).trace.digest() for seed in {seeds}))"
    )
    done = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for hash_seed in ("5", "77")
    ]
    assert done[0] == done[1]
    assert len(set(done[0])) == 4


def test_a_history_with_a_fault_is_not_one_without() -> None:
    """The faults do happen: a run that is killed is started again."""
    history = replace(history_of(1), faults=(Fault("kill", None, 60),))
    outcome = run(history)
    assert outcome.starts == 2
    assert "killed" in {each.kind for each in outcome.trace.events}
    assert run(replace(history, faults=())).starts == 1


def test_a_write_of_a_process_that_was_killed_is_carried_out_later() -> None:
    """Its rows are then there once: the next start finds that another writer was here, or what comes late is refused."""
    base = replace(
        history_of(5), shape="tumbling", sink="transactional", lossy=0.0, away={}, failing=0.0, full_until_us=0
    )
    late = 0
    for seed in range(12):
        outcome = run(replace(base, seed=seed, faults=(Fault("kill", "table", 2), Fault("kill", "table", 3))))
        assert not outcome.wrong, (seed, outcome.wrong)
        late += sum(event.kind == "late" for event in outcome.trace.events)
    assert late


@pytest.mark.parametrize("place", ["write", "sync", "rename"])
def test_a_start_from_a_savepoint_can_be_killed_anywhere(place: str) -> None:
    """It was refused afterwards: the order log was there before the checkpoint."""
    history = replace(history_of(149), shape="tumbling", sink="transactional")
    for count in range(1, 8):
        outcome = run(
            replace(history, faults=(Fault("savepoint", "reader.after_poll", 2), Fault("kill", place, count)))
        )
        assert not outcome.wrong, (count, outcome.wrong)
        assert outcome.starts == 3


@pytest.mark.parametrize("part", range(4))
def test_histories_of_several_instances_break_no_rule(part: int) -> None:
    for seed in range(part, _SHARED_SEEDS, 4):
        outcome = run_shared(shared_history_of(seed))
        told = f"{outcome.history}\npython -m tests.simulation replay {seed} --instances\n"
        assert not outcome.wrong, told + "\n".join(outcome.wrong)


@pytest.mark.parametrize("seed", [45, 48])
def test_an_instance_that_was_away_does_not_end_because_its_shards_were_trimmed(seed: int) -> None:
    """It waits for a table until others have its shards, and then reads one where it was: those records are not there any more."""
    base, begin = shared_history_of(seed + 500), 1_000_000 + (seed % 5) * 400_000
    shape = "join" if seed % 2 else "running"
    given = make_input(Random(seed), SHAPES[shape].sources, records_max=12, span_us=3_000_000, bad=False)
    options = {name: value for name, value in base.options.items() if name != "state_store"}
    small = {"session": 1.0, "shards": 3, "checkpoint_interval": 0.05, "max_cached_rows": 1}
    history = replace(
        base, shape=shape, sink="transactional", broker="memory", instances=3, lossy=0.0, input=given, options={**options, **small},
        away={"table": ((begin, begin + 3_000_000),)}, events=(Event(begin + 300_000, "expel", 0),),
    )  # fmt: skip
    with patch.object(stages, "_TRIM_SECONDS", 0.0):
        outcome = run_shared(history)
    assert not outcome.wrong, f"{outcome.history}\n" + "\n".join(outcome.wrong)


@pytest.mark.parametrize(("shape", "sink"), [("tumbling", "transactional"), ("plain", "file")])
def test_what_a_killed_process_has_made_is_durable_before_it_is_relied_on(shape: str, sink: str) -> None:
    """Killed between a rename and its sync, started again, and then the power fails: directories, checkpoints and parts must be there."""
    base = history_of(24)
    records = [(0, row) for _, row in base.input["s0"]["q0"][:6]]
    options = {**base.options, "checkpoint_interval": 0.001, "max_batch_records": 3}
    calm = replace(base, shape=shape, sink=sink, trims=True, journal=False, lossy=0.0, away={}, failing=0.0, slow=0.0, jumps=(),
                   full_until_us=0, options=options, input={"s0": {"q0": records}})  # fmt: skip
    for sync, steps in ((1, 60), (3, 60), (11, 40), (17, 17), (5, 25), (7, 40), (9, 60), (21, 17)):
        faults = (Fault("kill", "sync", sync), Fault("power", None, steps))
        outcome = run(replace(calm, seed=100 * sync + steps, faults=faults))
        assert not outcome.wrong, (sync, steps, outcome.wrong)


#: Planted bugs that are found soon. The others: `make simulate-mutations`, with a table in docs/simulation.md.
_SOON = [name for name in MUTATIONS if name.startswith(("checkpoint without flush", "source told before"))]


@pytest.mark.parametrize("name", _SOON)
def test_planted_bugs_are_found(name: str) -> None:
    assert seeds_until_found(name, 60) is not None
