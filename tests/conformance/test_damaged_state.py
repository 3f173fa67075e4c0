"""Damage to anything that a checkpoint stands on: the job goes on exactly, or says which file is damaged. Never a wrong row."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.errors import HeadraceError

#: ``DAMAGE=100000 pytest tests/conformance/test_damaged_state.py`` for a long run (``make damage``).
ROUNDS = int(os.environ.get("DAMAGE", "40"))


def lay(number: int) -> None:
    Path("in").mkdir(exist_ok=True)
    rows = [{"k": f"k{n % 7}", "v": n * number} for n in range(60)]
    Path("in", f"{number}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))


def job() -> Any:
    stream = hr.stream("shop", "damage").from_file(
        "in/*.ndjson", format="json", schema={"k": "string", "v": "int64"}, name="in"
    )
    return stream.key_by("k").agg(n="count(*)", s="sum(v)", m="max(v)").to_file("out", changes="column", fsync=False)


def run() -> None:
    job().run("light", checkpoint="state", shards=2, max_batch_records=25)


def rows() -> Counter[str]:
    return Counter(line for path in Path("out").glob("part-*") for line in path.read_text().splitlines())


def damage(rng: random.Random, files: list[Path]) -> str:
    """Damage one file, or several; return what was done."""
    file = rng.choice(files)
    content = file.read_bytes()
    kind = rng.choice(["flip", "flip", "flip", "cut", "empty", "remove", "swap", "foreign"])
    if kind == "flip" and content:
        place = rng.randrange(len(content))
        file.write_bytes(content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :])
        return f"flip at {place} of {file}"
    if kind == "cut" and content:
        file.write_bytes(content[: rng.randrange(len(content))])
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "remove":
        file.unlink()
    elif kind == "swap":
        other = rng.choice(files)
        there = other.read_bytes()
        other.write_bytes(content)
        file.write_bytes(there)
        return f"swap of {file} and {other}"
    elif kind == "foreign":
        file.write_bytes(
            Path("foreign", *file.parts[1:]).read_bytes() if Path("foreign", *file.parts[1:]).exists() else b"{}"
        )
    return f"{kind} of {file}"


def stored_files() -> list[Path]:
    return sorted(path for path in Path("state", "light").rglob("*") if path.is_file() and path.name != "lock")


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Lay out a job that has made two checkpoints, and return what it comes to with a third file."""
    monkeypatch.chdir(tmp_path)
    lay(3)
    run()
    shutil.move("state", "foreign")
    shutil.rmtree("out")
    Path("in/3.ndjson").unlink()
    for number in (1, 2):
        lay(number)
        run()
    shutil.copytree("state", "kept-state")
    shutil.copytree("out", "kept-out")
    lay(3)
    run()
    return rows()


def test_no_damage_gives_a_wrong_row(prepared: Counter[str]) -> None:
    seed = int(os.environ.get("DAMAGE_SEED", "1"))
    refused = 0
    for number in range(ROUNDS):
        rng = random.Random(seed * 1_000_003 + number)
        for name in ("state", "out"):
            shutil.rmtree(name)
            shutil.copytree(f"kept-{name}", name)
        done = damage(rng, stored_files())
        try:
            run()
        except HeadraceError:
            refused += 1
        else:
            assert rows() == prepared, f"round {number}: {done}"
    assert refused > ROUNDS // 3


def test_a_checkpoint_says_what_it_stands_on(prepared: Counter[str]) -> None:
    stored = json.loads(Path("state/light/checkpoint.json").read_text())
    names = {
        path.parent.name + "/" + path.name.split(".")[0].lstrip("0")
        for path in stored_files()
        if path.suffix in (".delta", ".snapshot")
    }
    assert sum(len(chain) for chain in stored["states"].values()) == len(names)


@pytest.mark.parametrize("how", ["remove", "empty", "foreign", "older"])
def test_keyed_state_that_is_not_there_is_never_taken_for_empty(how: str, prepared: Counter[str]) -> None:
    for name in ("state", "out"):
        shutil.rmtree(name)
        shutil.copytree(f"kept-{name}", name)
    states = [path for path in stored_files() if path.suffix in (".delta", ".snapshot")]
    if how == "older":  # the state of a checkpoint before
        states[-1].unlink()
    for path in states if how != "older" else ():
        if how == "empty":
            path.write_bytes(b"")
        elif how == "remove":
            path.unlink()
    if how == "foreign":
        shutil.rmtree("state/light/state")
        shutil.copytree("foreign/light/state", "state/light/state")
    with pytest.raises(HeadraceError, match=r"state file|state of shard"):
        run()
    assert rows() == Counter(line for path in Path("kept-out").glob("part-*") for line in path.read_text().splitlines())


def test_an_older_checkpoint_is_not_taken_for_the_newest(prepared: Counter[str]) -> None:
    # The output is that of three files, the checkpoint that of two.
    shutil.rmtree("state")
    shutil.copytree("kept-state", "state")
    with pytest.raises(HeadraceError, match="new results would be dropped as known"):
        run()
    assert rows() == prepared
