"""``python -m tests.simulation SEEDS``: run histories; ``replay SEED``: print one; ``mutations``: plant bugs and look for them;
``shrink SEED``: make one that breaks a rule smaller, and print it as a sequence diagram.

SEEDS: a count, FROM-TO, or =SEED. ``--instances``, ``--plans`` and others choose another kind of histories than those of one instance.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # frames are small; before polars is imported

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping

from tests.simulation.buffers import buffer_history_of, run_buffer
from tests.simulation.changed import changed_history_of, run_changed
from tests.simulation.connectors import connector_history_of, run_connector
from tests.simulation.diagrams import diagram
from tests.simulation.histories import history_of, rot_history_of
from tests.simulation.instances import run_shared, shared_history_of
from tests.simulation.leases import lease_history_of, run_lease
from tests.simulation.mutations import BY_KIND, MUTATIONS
from tests.simulation.plans import plan_history_of, run_plan
from tests.simulation.running import run
from tests.simulation.shrinking import shrink
from tests.simulation.starting import Outcome
from tests.simulation.warming import warm
from tests.simulation.workers import run_with_workers

#: Garbage is looked for after so many histories.
_COLLECTED = 20


def run_seed(seed: int) -> Outcome:
    """Run the history of one instance that a seed means."""
    warm()
    return run(history_of(seed))


def run_instances(seed: int) -> Outcome:
    """Run the history of several instances that a seed means."""
    warm()
    return run_shared(shared_history_of(seed))


def run_buffers(seed: int) -> Outcome:
    """Run the history of a buffer on disk that a seed means."""
    return run_buffer(buffer_history_of(seed))


def run_leases(seed: int) -> Outcome:
    """Run the history of a lease that a seed means."""
    return run_lease(lease_history_of(seed))


def run_plans(seed: int) -> Outcome:
    """Run the history of a generated job that a seed means."""
    warm()
    return run_plan(plan_history_of(seed))


def run_connectors(seed: int) -> Outcome:
    """Run the history with the sink of a connector that a seed means."""
    warm()
    return run_connector(connector_history_of(seed))


def run_workers(seed: int) -> Outcome:
    """Run the history of one instance with worker processes that a seed means."""
    warm()
    return run_with_workers(history_of(seed))


def run_rot(seed: int) -> Outcome:
    """Run the history of a checkpoint that rots that a seed means."""
    warm()
    return run(rot_history_of(seed))


def run_changes(seed: int) -> Outcome:
    """Run the history of a job that is changed between its starts that a seed means."""
    warm()
    return run_changed(changed_history_of(seed))


#: The kinds of histories beside those of one instance, by the name of their option, and what they are.
KINDS: Mapping[str, tuple[Callable[[int], Outcome], str]] = {
    "instances": (run_instances, "of several instances over a broker"),
    "plans": (run_plans, "of generated jobs (tests/differential/streams)"),
    "connectors": (run_connectors, "with sinks of connectors over simulated servers"),
    "workers": (run_workers, "of one instance with two worker processes"),
    "rot": (run_rot, "of a checkpoint of which a bit turns round"),
    "changes": (run_changes, "of a job that is changed between its starts"),
    "buffers": (run_buffers, "of a buffer on disk"),
    "leases": (run_leases, "of a lease"),
}


def seeds_of(text: str) -> range:
    """Return the seeds that a text names."""
    if text.startswith("="):
        return range(int(text[1:]), int(text[1:]) + 1)
    begin, dash, end = text.partition("-")
    return range(int(begin), int(end) + 1) if dash else range(int(begin))


def simulate(seeds: range, run_one: Callable[[int], Outcome], *, failures_max: int) -> int:
    """Run the histories of seeds, print those that break a rule, and return how many do."""
    warm()
    gc.disable()
    gc.freeze()  # else garbage is looked for among the modules, after every history
    begun, used = time.monotonic(), time.process_time()
    found = steps = starts = done = 0
    happened: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_one(seed)
        if done % _COLLECTED == 0:
            gc.collect()
        happened += outcome.trace.faults()
        done, steps, starts = done + 1, steps + outcome.steps, starts + outcome.starts
        if outcome.wrong:
            found += 1
            print(outcome.history, *outcome.wrong, sep="\n    ", flush=True)
            print(
                f"    again: python -m tests.simulation replay {seed}{_option(run_one)}; smaller: shrink {seed}",
                flush=True,
            )
        if found >= failures_max:
            break
    used, seconds = time.process_time() - used, time.monotonic() - begun
    print(
        f"{done} histories, {starts} starts, {steps} steps, {found} wrong; {used:.1f} CPU seconds, {seconds:.1f} s: "
        f"{60 * done / max(used, 1e-9):.0f} histories a minute of CPU"
    )
    print(", ".join(f"{count} {kind}" for kind, count in sorted(happened.items())))
    return found


def _option(run_one: Callable[[int], Outcome]) -> str:
    return next((f" --{name}" for name, (one, _) in KINDS.items() if one is run_one), "")


def replay(seed: int, run_one: Callable[[int], Outcome]) -> int:
    """Print everything that happens in the history of a seed."""
    outcome = run_one(seed)
    print(outcome.history)
    print(outcome.trace.text(), end="")
    print(*(outcome.wrong or ["nothing is wrong"]), sep="\n")
    print("digest", outcome.trace.digest())
    return len(outcome.wrong)


def shrunk(seed: int, kind: str | None) -> int:
    """Print the smallest history that breaks a rule as that of a seed does, and what happens in it."""
    if kind == "instances":
        outcome = shrink(shared_history_of(seed), run_shared)
    elif kind == "connectors":
        outcome = shrink(connector_history_of(seed), run_connector)
    elif kind == "changes":
        outcome = shrink(changed_history_of(seed), run_changed)
    elif kind == "plans":
        outcome = shrink(plan_history_of(seed), run_plan)
    else:
        outcome = shrink(history_of(seed), run)
    print(outcome.history, *outcome.wrong, sep="\n")
    print(*(f"{name}: {value}" for name, value in vars(outcome.history).items()), sep="\n")
    print(diagram(outcome.trace), end="")
    return 1


def seeds_until_found(name: str, seeds_max: int, *, first: int = 0) -> int | None:
    """Return after how many seeds a planted bug was found, the first of them left out; None: it was not."""
    kind = next(each for each, names in BY_KIND.items() if name in names)
    run_one = KINDS[kind][0] if kind in KINDS else run_seed
    with MUTATIONS[name]():
        for seed in range(first, first + seeds_max):
            if run_one(seed).wrong:
                return seed + 1
    return None


def mutations(seeds_max: int, only: str) -> int:
    """Print after how many seeds each planted bug was found."""
    print("| planted bug | found after seeds |\n|---|--:|")
    missed = 0
    for name in MUTATIONS:
        if only in name:
            found = seeds_until_found(name, seeds_max)
            missed += found is None
            print(f"| {name} | {found if found is not None else f'not within {seeds_max}'} |", flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("what", help="SEEDS (a count, FROM-TO, =SEED), replay, shrink, or mutations")
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--failures", type=int, default=5, help="end after so many histories that break a rule")
    parser.add_argument("--seeds-max", type=int, default=10_000, help="how many seeds are tried per planted bug")
    parser.add_argument("--only", default="", help="planted bugs whose name has this in it")
    for name, (_, what) in KINDS.items():
        parser.add_argument(f"--{name}", dest="kind", action="store_const", const=name, help=f"histories {what}")
    given = parser.parse_args()
    run_one = KINDS[given.kind][0] if given.kind is not None else run_seed
    if given.what == "replay":
        return min(1, replay(given.seed, run_one))
    if given.what == "shrink":
        return shrunk(given.seed, given.kind)
    if given.what == "mutations":
        return min(1, mutations(given.seeds_max, given.only))
    return min(1, simulate(seeds_of(given.what), run_one, failures_max=given.failures))


if __name__ == "__main__":
    sys.exit(main())
