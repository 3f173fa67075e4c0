"""docs/first-week.md, followed to the letter in an empty directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.documentation.test_first_steps import blocks_of, rows_in, shell, write_files
from tests.eventually import eventually

PAGE = "docs/first-week.md"


def ids_in(directory: Path) -> list[int]:
    return sorted(json.loads(row)["id"] for row in rows_in(directory))


@pytest.mark.slow  # the page of the server is followed in every run
def test_the_week_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_DATA", "HEADRACE_SERVER", "HEADRACE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SHOP", str(tmp_path))
    blocks = {name: text for kind, name, text in blocks_of(PAGE) if kind == "shell"}
    install, *directories = blocks.pop("monday-install").splitlines()
    assert install == 'pip install "headrace[all]"'  # tests/packaging runs it in an empty environment
    shell("\n".join(directories), tmp_path)
    write_files(blocks_of(PAGE), tmp_path)
    ran = []

    def run(name: str) -> str:
        ran.append(name)
        return shell(blocks[name], tmp_path)

    def is_there(version: int) -> bool:
        return f"  {version}  20" in shell("headrace status shop/orders", tmp_path).replace("*", " ")

    run("monday-start")
    try:
        eventually(lambda: "shop/orders" in shell("headrace jobs", tmp_path), "the job is there")
        eventually(lambda: is_there(1), "version 1")
        assert "running" in run("monday-run")
        eventually(lambda: ids_in(tmp_path / "large") == [1], "the first order")
        assert "user put  ben" in run("tuesday")
        assert 'headrace_server_jobs{state="running"} 1.0' in run("wednesday")
        run("thursday-change")
        eventually(lambda: is_there(2), "version 2")
        assert "1 rows are the same, 0 only of 1, 0 only of 2" in run("thursday-compare")
        assert "shop/orders: version 1" in run("thursday-back")
        run("friday-bad")
        eventually(lambda: ids_in(tmp_path / "large") == [1, 3], "the good order behind the bad one")
        run("weekend-stop")
        run("weekend-start")
        shell('echo \'{"id": 4, "customer": "ada", "amount": 400}\' >> orders/today.ndjson', tmp_path)
        eventually(lambda: ids_in(tmp_path / "large") == [1, 3, 4], "an order after the weekend")
        letters = [
            json.loads(row) for row in rows_in(tmp_path / "headrace-data/jobs/shop/orders/checkpoint/dead-letters")
        ]
        assert [each["offset"] for each in letters] == [1]
    finally:
        run("weekend-end")
    assert set(ran) == set(blocks)
