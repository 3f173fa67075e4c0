"""What the tests of damage share: files that are kept and put back, ways to damage one, and the smallest job with keyed state."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.runtime.state_contents import shard_contents
from headrace.runtime.state_frames import unpack

from tests.effort import examples

#: The first round of a long run, and how many; ``DAMAGE_SEED`` gives other rounds. ``make damage`` sets them.
FIRST = int(os.environ.get("DAMAGE_FROM", "0"))
SEED = int(os.environ.get("DAMAGE_SEED", "1"))
#: Files that hold nothing.
_LOCKS = frozenset({"lock", "headrace.lock", "LOCK"})
Files = dict[str, bytes]


def rounds(default: int) -> range:
    """Return the numbers of the rounds of this run: ``DAMAGE`` of them from ``DAMAGE_FROM`` on."""
    return range(FIRST, FIRST + int(os.environ.get("DAMAGE", str(examples(default)))))


def chance(number: int, kind: int = 1) -> random.Random:
    """Return the random numbers of a round, which are always the same."""
    return random.Random((SEED * kind) * 1_000_003 + number)


def lay(number: int) -> None:
    """Lay out a file of 60 records."""
    Path("in").mkdir(exist_ok=True)
    rows = [{"k": f"k{n % 7}", "v": n * number} for n in range(60)]
    Path("in", f"{number}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))


def job() -> Any:
    """Return a job with running aggregates over the files that ``lay`` makes."""
    stream = hr.stream("shop", "damage").from_file(
        "in/*.ndjson", format="json", schema={"k": "string", "v": "int64"}, name="in"
    )
    return stream.key_by("k").agg(n="count(*)", s="sum(v)", m="max(v)").to_file("out", changes="column", fsync=False)


def rows() -> Counter[str]:
    """Return the rows that ``job`` has written."""
    return Counter(line for path in Path("out").glob("part-*") for line in path.read_text().splitlines())


def files_in(*directories: str) -> Files:
    """Return the content of every file below some directories, by path."""
    found = [path for each in directories for path in Path(each).rglob("*") if path.is_file()]
    contents = {}
    for path in sorted(found):
        if path.name not in _LOCKS:
            with contextlib.suppress(FileNotFoundError):  # a job that still runs removes and renames files
                contents[str(path)] = path.read_bytes()
    return contents


def put_back(files: Files, *directories: str) -> None:
    """Let directories hold these files and no others."""
    there: set[str] = set()
    for each in directories:
        for folder, _, names in os.walk(each):
            there.update(os.path.normpath(os.path.join(folder, name)) for name in names if name not in _LOCKS)
    for name in there - files.keys():
        os.unlink(name)
    for name, content in files.items():
        if name in there:
            with open(name, "rb") as file:
                if file.read() == content:
                    continue
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def damage(rng: random.Random, names: Sequence[str], *others: Mapping[str, bytes]) -> str:
    """Damage one file, or exchange two; return what was done. ``others``: files of other checkpoints of the same job, by path."""
    file = Path(rng.choice(names))
    content = file.read_bytes()
    kind = rng.choice(["flip", "flip", "flip", "cut", "empty", "remove", "swap", "foreign"])
    if kind == "flip" and content:
        place = rng.randrange(len(content))
        file.write_bytes(content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :])
        return f"flip at {place} of {file}"
    if kind == "cut" and content:
        size = rng.randrange(len(content))
        file.write_bytes(content[:size])
        return f"cut of {file} to {size}"
    if kind == "empty":
        file.write_bytes(b"")
    elif kind == "remove":
        file.unlink()
    elif kind == "swap":
        other = Path(rng.choice(names))
        there = other.read_bytes()
        other.write_bytes(content)
        file.write_bytes(there)
        return f"swap of {file} and {other}"
    elif kind == "foreign":
        found = [each[str(file)] for each in others if str(file) in each]
        file.write_bytes(rng.choice(found) if found else b"{}")
    return f"{kind} of {file}"


def same_states(some: Sequence[bytes], others: Sequence[bytes]) -> bool:
    """Return whether shards remember the same, whatever order their verbs keep rows in."""
    return all(one == other or _held(one) == _held(other) for one, other in zip(some, others, strict=True))


@lru_cache(8)
def _held(state: bytes) -> Any:
    found = shard_contents("", 0, state)
    frames = {
        (name, each): sorted(map(repr, frame.rows()))
        for name, operator in found.operators.items()
        for each, frame in unpack(operator)[1].items()
    }
    return found.watermark_us, sorted(found.upstreams), frames
