"""What ``headrace state show`` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import typer
from headrace.foundation.errors import CheckpointError, MissingPluginError, OptionError, did_you_mean
from headrace.interfaces.registry import default_registry
from headrace.plan.graph import Plan
from headrace.runtime.savepoints import MANIFEST, Savepoint, operators_of
from headrace.runtime.shard_states import StageStates
from headrace.runtime.state_contents import (
    OperatorContents,
    ShardContents,
    operator_contents,
    rows_of_key,
    shard_contents,
)

from headrace_console.job_files import load_job, parse_assignments
from headrace_console.reporting import say

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Stored:
    """A savepoint or checkpoint that was read."""

    kind: str
    about: dict[str, Any]
    #: (id of the queue, offset of its next record).
    positions: list[tuple[str, int]]
    #: By the id of a verb with state: its verb, keys, description and shuffle.
    operators: Mapping[str, Mapping[str, Any]]
    shards: list[ShardContents] = field(default_factory=list)
    #: By shuffle: bytes of state that is stored as changes, which only the verbs of the job can combine.
    changes: dict[str, int] = field(default_factory=dict)


def show_state(path: Path, *, keys: Sequence[str], verb: str | None, as_json: bool, job: str | None) -> None:
    """Print what a savepoint or checkpoint holds. Raises JobError if ``path`` is neither.

    ``keys``: texts ``COLUMN=VALUE``; only the rows of this key are printed. ``verb``: the id of the only verb to print.
    ``job``: the file of the job, for state that is stored as changes.
    """
    plan = None if job is None else load_job(job).plan()
    stored = _read(path, plan)
    if verb is not None:
        known = {name for shard in stored.shards for name in shard.operators} | set(stored.operators)
        if verb not in known:
            raise OptionError(
                f"there is no verb {verb!r}", option="verb", hint=did_you_mean(verb, known, known="verbs")
            )
        for shard in stored.shards:
            shard.operators = {name: state for name, state in shard.operators.items() if name == verb}
    if keys:
        _show_rows(stored, parse_assignments(keys, flag="--key"), as_json=as_json)
    elif as_json:
        typer.echo(json.dumps(_as_json(stored), indent=1, ensure_ascii=False))
    else:
        _show_table(stored)


# ---------------------------------------------------------------------------------------------------------- reading


def _read(path: Path, plan: Plan | None) -> Stored:
    if (path / MANIFEST).exists():
        return _of_savepoint(path)
    if (path / "light" / "checkpoint.json").exists():
        return _of_light(path, plan)
    if (path / "spark" / "offsets").is_dir():
        return _of_spark(path, plan)
    raise CheckpointError(
        f"{str(path)!r} is neither a savepoint nor a checkpoint of a job that has started",
        hint="give the checkpoint directory of the job, or the directory of the savepoint",
    )


def _of_savepoint(path: Path) -> Stored:
    found = Savepoint.read(path)
    about = {
        "job": found.job, "backend": found.backend, "headrace": found.headrace, "id": found.id, "stopped": found.place.stopped,
        "taken": _time(found.place.time_us), "sequence": found.place.sequence,
    }  # fmt: skip
    positions = [(queue.id, at.offset) for queue, at in sorted(found.place.positions.items())]
    operators = {
        name: {"verb": each.verb, "keys": list(each.keys), "shuffle": each.shuffle, "description": each.description}
        for name, each in found.operators.items()
    }
    stored = Stored("savepoint", about, positions, operators)
    for shuffle in found.place.shards:
        stored.shards += [shard_contents(shuffle, number, state) for number, state in enumerate(found.states(shuffle))]
    return stored


def _of_light(path: Path, plan: Plan | None) -> Stored:
    directory = path / "light"
    value = json.loads((directory / "checkpoint.json").read_bytes())
    about = {"job": value["job"], "backend": "light", "checkpoint": value["id"], "sequence": value.get("sequence")}
    positions = [(f"{each['source']}/{each['queue']}", int(each["offset"])) for each in value["queues"]]
    stored = Stored("checkpoint", about, positions, {} if plan is None else operators_of(plan))
    if not (directory / "state").is_dir():
        return stored  # the job has no keyed state, or another state store has it
    kind = default_registry().find("state store", "directory")
    store = kind(kind.Settings.of(kind.defaults(value["job"], str(directory)), plugin="directory"))
    for shuffle, count in value.get("shards", {}).items():
        for number in range(count):
            versions = [state for version, state, _ in store.load(f"{shuffle}/{number}") if version <= int(value["id"])]
            _add_shard(stored, plan, shuffle, number, versions)
    return stored


def _of_spark(path: Path, plan: Plan | None) -> Stored:
    try:
        from headrace_spark.checkpoints.ownership import spans_below
        from headrace_spark.checkpoints.state_files import state_files
        from headrace_spark.shards.shard_state import StateChain, StateVersion
        from headrace_spark.shards.topology import Address
    except ImportError as error:
        raise MissingPluginError(
            "this is a checkpoint of the Spark backend", hint="pip install headrace-spark"
        ) from error
    completed = [int(each.name) for each in (path / "spark" / "commits").iterdir() if each.name.isdigit()]
    if not completed:
        raise CheckpointError(f"{str(path)!r} has no completed micro-batch yet")
    last = max(completed)
    value = json.loads((path / "spark" / "offsets" / str(last)).read_text(encoding="utf-8").splitlines()[2])
    keyed = value.get("keyed")
    sequence = None if keyed is None else keyed["base"] + last
    about = {"job": value["job"], "backend": "spark", "micro_batches": last + 1, "sequence": sequence}
    positions = [
        (f"{source}/{name}", int(at["offset"]))
        for source, each in value["sources"].items()
        for name, at in each["queues"].items()
    ]
    stored = Stored("checkpoint", about, positions, {} if plan is None else operators_of(plan))
    files = state_files((path / "shards").absolute().as_uri())
    spans = spans_below(state_files(path.absolute().as_uri()))
    for shuffle in (name for names in (keyed or {"levels": []})["levels"] for name in names):
        for number in range(keyed["shards"]):
            chain = StateChain(files, Address(unquote(shuffle), number), value.get("checkpoint"), spans=spans)
            versions = [state for state, _ in chain.after(StateVersion(), last + 1)]
            _add_shard(stored, plan, shuffle, number, versions)
    return stored


def _add_shard(stored: Stored, plan: Plan | None, shuffle: str, number: int, versions: Sequence[bytes]) -> None:
    """Add a shard with the state of its stored versions. Several versions can only be combined by the job's verbs."""
    filled = [each for each in versions if each]
    if not filled:
        return
    if plan is not None and shuffle in plan.shuffles:
        stored.shards.append(shard_contents(shuffle, number, StageStates(plan, shuffle).whole(filled)))
        return
    found = [shard_contents(shuffle, number, each) for each in filled]
    if len(filled) == 1:
        stored.shards += found
        return
    stored.changes[shuffle] = stored.changes.get(shuffle, 0) + sum(map(len, filled))
    stored.shards.append(ShardContents(shuffle, number, found[-1].watermark_us, found[-1].upstreams, {}))


# --------------------------------------------------------------------------------------------------------- printing


def _as_json(stored: Stored) -> dict[str, Any]:
    contents = operator_contents(stored.shards)
    return {
        "kind": stored.kind,
        **stored.about,
        "positions": dict(stored.positions),
        "shards": [
            {"shuffle": shard.shuffle, "shard": shard.number, "watermark": _time(shard.watermark_us)}
            for shard in stored.shards
        ],
        "operators": {
            name: {**stored.operators.get(name, {}), **_sizes(contents.get(name))}
            for name in dict.fromkeys([*stored.operators, *contents])
        },
        "changes_bytes": stored.changes,
    }


def _sizes(about: OperatorContents | None) -> dict[str, Any]:
    if about is None:
        return {"bytes": 0, "rows": None}
    return {"bytes": about.bytes, "rows": about.rows}


def _show_table(stored: Stored) -> None:
    shown = ", ".join(f"{name} {value}" for name, value in stored.about.items() if value is not None and name != "job")
    typer.echo(f"{stored.kind} of {stored.about['job']}: {shown}")
    typer.echo("\nqueues")
    for queue, offset in stored.positions:
        typer.echo(f"  {queue:<40} {offset:>14,}")
    contents = operator_contents(stored.shards)
    marks = [shard.watermark_us for shard in stored.shards if shard.watermark_us is not None]
    if marks:
        typer.echo(f"\nwatermark  {_time(min(marks))}")
    names = dict.fromkeys([*stored.operators, *contents])
    if names:
        typer.echo(f"\n{'verb':<28} {'keys':<20} {'rows':>12} {'bytes':>14}")
    for name in names:
        about, of = contents.get(name), stored.operators.get(name, {})
        rows = "?" if about is None or about.rows is None else f"{sum(about.rows.values()):,}"
        typer.echo(f"{name:<28} {', '.join(of.get('keys', [])):<20} {rows:>12} {about.bytes if about else 0:>14,}")
        if of.get("description"):
            typer.echo(f"  {of['verb']}: {of['description']}")
    for shuffle, size in stored.changes.items():
        say(f"{shuffle}: {size:,} bytes in changes that only the job can combine: pass --job FILE", style="yellow")


def _show_rows(stored: Stored, key: Mapping[str, str], *, as_json: bool) -> None:
    found = list(_rows(stored, key))
    if as_json:
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False, default=str))
        return
    for each in found:
        typer.echo(f"{each['verb']} ({each['frame']}, shard {each['shard']})")
        for row in each["rows"]:
            typer.echo("  " + json.dumps(row, ensure_ascii=False, default=str))
    if not found:
        say("there are no rows with this key")
    if stored.changes:
        say("some state is in changes that only the job can combine: pass --job FILE", style="yellow")


def _rows(stored: Stored, key: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for verb, frame, shard, rows in rows_of_key(stored.shards, key):
        yield {"verb": verb, "frame": frame, "shard": shard, "rows": rows}


def _time(time_us: int | None) -> str | None:
    return None if time_us is None else (_EPOCH + timedelta(microseconds=time_us)).isoformat()
