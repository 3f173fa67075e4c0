"""``headrace savepoint``, ``headrace run --from`` and ``headrace state show``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import headrace as hr
import pytest
from typer.testing import Result

from tests.eventually import PATIENCE_SECONDS, eventually

WriteFile = Callable[..., Path]
Command = Callable[..., Result]
SCRIPT = Path(sys.executable).with_name("headrace")
JOB = """
    import headrace as hr

    stream = hr.stream("shop", "hosts").from_file(
        "in/*.ndjson", format="json", schema={"host": "string", "v": "int64", "ts": "timestamp"}
    )
    counts = stream.key_by("host").agg(n="count(*)", s="sum(v)")
    windows = stream.key_by("host").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)")
    job = counts.to_file("out", format="json", changes="column").also(windows.to_file("windows", format="json"))
"""


def lay_out(directory: Path, begin: int, end: int) -> None:
    (directory / "in").mkdir(exist_ok=True)
    rows = [{"host": f"web-{n % 3}", "v": n, "ts": f"2024-01-01T00:00:{n % 60:02d}Z"} for n in range(begin, end)]
    (directory / "in" / f"{begin}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def running(write_file: WriteFile, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A job that has read 50 rows and waits for more, with the checkpoint ``state``."""
    path = write_file(JOB)
    lay_out(tmp_path, 0, 50)
    run = [str(SCRIPT), "run", str(path), "-b", "light", "--until", "never"]
    command = [*run, "--checkpoint", "state", "-o", "shards=2"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*command, "-o", "checkpoint_interval=200 ms"], cwd=tmp_path, stderr=log)
    try:
        checkpoint = tmp_path / "state" / "light" / "checkpoint.json"
        eventually(
            lambda: checkpoint.exists() and '"offset": 50' in checkpoint.read_text(),
            "a checkpoint behind 50 rows",
            shown=(tmp_path / "log").read_text,
        )
        yield process
    finally:
        process.kill()
        process.wait()


def counts(directory: Path) -> dict[str, tuple[int, int]]:
    """Return the count and sum of each host in the end."""
    found: dict[str, tuple[int, int]] = {}
    for part in sorted((directory / "out").glob("*.json")):
        for line in part.read_text().splitlines():
            row = json.loads(line)
            if row["change"] in ("insert", "update_after"):
                found[row["host"]] = max(found.get(row["host"], (0, 0)), (row["n"], row["s"]))
    return found


def test_a_running_job_is_asked_and_another_goes_on(
    running: subprocess.Popen[bytes], headrace: Command, tmp_path: Path
) -> None:
    result = headrace("savepoint", "state", "first")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == str(tmp_path / "first")
    taken = headrace("savepoint", "state", "first")
    assert taken.exit_code == 2
    assert "exists already" in taken.stderr
    assert headrace("savepoint", "state", "last", "--stop").exit_code == 0
    assert running.wait(PATIENCE_SECONDS) == 0
    assert "stopped after" in (tmp_path / "log").read_text()

    lay_out(tmp_path, 50, 90)
    done = headrace("run", "job.py", "-b", "light", "--from", "last", "--checkpoint", "other", "-o", "shards=3")
    assert done.exit_code == 0, done.stderr
    assert counts(tmp_path) == {f"web-{n}": (30, sum(range(n, 90, 3))) for n in range(3)}
    refused = headrace("run", "job.py", "-b", "light", "--from", "first", "-o", "shards=3")
    assert refused.exit_code == 2
    assert "came after the savepoint" in refused.stderr
    wrong = headrace("run", "job.py", "-b", "light", "--from", "last", "--drop-state", "agregate")
    assert wrong.exit_code == 2
    assert "did you mean 'aggregate'?" in wrong.stderr


def test_an_output_that_is_ahead_of_the_checkpoint_is_a_choice(
    write_file: WriteFile, headrace: Command, tmp_path: Path
) -> None:
    write_file(JOB.replace('.also(windows.to_file("windows", format="json"))', ""))
    run = ("run", "job.py", "-b", "light", "--checkpoint", "state")
    for number in range(3):
        lay_out(tmp_path, 30 * number, 30 * number + 30)
        assert headrace(*run).exit_code == 0
        if number == 0:
            shutil.copytree(tmp_path / "state", tmp_path / "older")
    before = counts(tmp_path)
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "older", tmp_path / "state")
    refused = headrace(*run)
    assert refused.exit_code == 2
    assert "--sinks-ahead write" in refused.stderr
    assert counts(tmp_path) == before
    lay_out(tmp_path, 90, 120)
    assert headrace(*run, "--sinks-ahead", "write").exit_code == 0
    assert counts(tmp_path) == {f"web-{n}": (40, sum(range(n, 120, 3))) for n in range(3)}


def test_what_is_stored_is_shown(running: subprocess.Popen[bytes], headrace: Command, tmp_path: Path) -> None:
    assert headrace("savepoint", "state", "here", "--stop").exit_code == 0
    table = headrace("state", "show", "here")
    assert table.exit_code == 0, table.stderr
    assert "savepoint of shop.hosts" in table.stdout
    assert "aggregate: n=count(*), s=sum(v) by host" in table.stdout
    whole = json.loads(headrace("state", "show", "here", "--format", "json").stdout)
    assert whole["positions"] == {"file/in/0.ndjson": 50}
    assert whole["operators"]["aggregate"]["rows"] == {"keys.set": 3}
    assert whole["operators"]["aggregate"]["keys"] == ["host"]
    rows = json.loads(headrace("state", "show", "here", "--key", "host=web-1", "-f", "json").stdout)
    assert {each["verb"] for each in rows} == {"aggregate", "window_aggregate"}
    assert all(row["host"] == "web-1" for each in rows for row in each["rows"])
    one = headrace("state", "show", "here", "--key", "host=web-1", "--verb", "aggregate")
    assert '"host": "web-1"' in one.stdout
    assert "window_aggregate" not in one.stdout
    unknown = headrace("state", "show", "here", "--key", "hosts=web-1")
    assert unknown.exit_code == 2
    assert "no verb keeps rows with the columns hosts" in unknown.stderr
    checkpoint = json.loads(headrace("state", "show", "state", "--job", "job.py", "-f", "json").stdout)
    assert checkpoint["kind"] == "checkpoint"
    assert checkpoint["operators"]["aggregate"]["rows"] == {"keys.set": 3}
    assert headrace("state", "show", "in").exit_code == 2


@pytest.mark.spark
@pytest.mark.slow
def test_what_a_checkpoint_of_spark_holds_is_shown(write_file: WriteFile, headrace: Command, tmp_path: Path) -> None:
    """By itself where a shard is stored whole, with the job where its state is in changes."""
    write_file(JOB)
    lay_out(tmp_path, 0, 50)
    run = ("run", "job.py", "-b", "spark", "--checkpoint", "state", "-o", "shards=2")
    assert headrace(*run).exit_code == 0
    first = json.loads(headrace("state", "show", "state", "-f", "json").stdout)
    assert (first["kind"], first["backend"], first["job"]) == ("checkpoint", "spark", "shop.hosts")
    assert first["positions"] == {"file/in/0.ndjson": 50}
    lay_out(tmp_path, 50, 90)
    assert headrace(*run).exit_code == 0

    table = headrace("state", "show", "state", "--job", "job.py")
    assert table.exit_code == 0, table.stderr
    assert "checkpoint of shop.hosts: backend spark" in table.stdout
    assert "aggregate: n=count(*), s=sum(v) by host" in table.stdout
    whole = json.loads(headrace("state", "show", "state", "--job", "job.py", "-f", "json").stdout)
    assert whole["positions"] == {"file/in/0.ndjson": 50, "file/in/50.ndjson": 40}
    assert whole["micro_batches"] > first["micro_batches"]
    assert whole["operators"]["aggregate"]["rows"] == {"keys.set": 3}
    assert {(each["shuffle"], each["shard"]) for each in whole["shards"]} == {
        (shuffle, shard) for shuffle in ("key_by", "key_by-2") for shard in (0, 1)
    }
    rows = json.loads(headrace("state", "show", "state", "--job", "job.py", "--key", "host=web-1", "-f", "json").stdout)
    [kept] = [row for each in rows if each["verb"] == "aggregate" for row in each["rows"]]
    assert kept["host"] == "web-1"
    assert {30, sum(range(1, 90, 3))} <= set(kept.values()), "its count and its sum"
    (tmp_path / "begun" / "spark" / "offsets").mkdir(parents=True)
    (tmp_path / "begun" / "spark" / "commits").mkdir()
    refused = headrace("state", "show", "begun")
    assert refused.exit_code == 2
    assert "no completed micro-batch" in refused.stderr


def test_nobody_to_ask(headrace: Command, tmp_path: Path) -> None:
    result = headrace("savepoint", "nothing", "here")
    assert result.exit_code == 2
    assert "no job runs with the checkpoint 'nothing'" in result.stderr
    assert not (tmp_path / "here").exists()


def test_a_request_that_nobody_takes_is_taken_back(tmp_path: Path) -> None:
    from datetime import timedelta

    from headrace.runtime.control import ask_for_savepoint

    (tmp_path / "control").mkdir()
    with pytest.raises(hr.CheckpointError, match="no job runs"):
        ask_for_savepoint(tmp_path, tmp_path / "here", stop=False, claim_timeout=timedelta(0))
    assert list((tmp_path / "control").iterdir()) == []
