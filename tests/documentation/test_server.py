"""docs/server.md, followed to the letter in an empty directory."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import msgspec
import pytest
import yaml
from headrace_light.settings import LightSettings
from headrace_server.jobs_directory.settings import JobSettings, schedule_of, settings_of
from headrace_server.schedules import ScheduleSettings
from typer.main import get_command

from tests.documentation.test_first_steps import ROOT, blocks_of, rows_in, shell, write_files
from tests.eventually import eventually

PAGE = "docs/server.md"


def test_the_page_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_DATA", raising=False)
    write_files(blocks_of(PAGE), tmp_path)
    blocks = {name: text for kind, name, text in blocks_of(PAGE) if kind == "shell"}
    assert "a server runs at http://127.0.0.1:" in shell(blocks["start"], tmp_path)
    try:
        eventually(lambda: rows_in(tmp_path / "alerts") == ['{"host":"web-1","level":5}'], "the alert is there")
        assert "alerts: running, version 1" in shell(blocks["look"], tmp_path)
        shell(blocks["change"], tmp_path)
        eventually(lambda: "alerts: running, version 2" in shell("headrace status alerts", tmp_path), "version 2 runs")
        back, stop = blocks["back"].splitlines()
        assert "alerts: version 1" in shell(back, tmp_path)
    finally:
        stop = blocks["back"].splitlines()[-1]
        assert "the server and its jobs have stopped" in shell(stop, tmp_path)
    assert rows_in(tmp_path / "alerts") == ['{"host":"web-1","level":5}']


def test_the_page_names_every_setting_with_its_default(tmp_path: Path) -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    table = text[text.index("| setting |") : text.index("A job's process gets")]
    assert set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines()[2:] if line))) == set(
        JobSettings.__struct_fields__
    )
    defaults = msgspec.structs.asdict(JobSettings())
    assert (defaults["stop_timeout"], defaults["health_timeout"], defaults["health_window"]) == (60.0, 60.0, 5.0)
    example, shared, spark, plugins, schedule = [block for kind, _, block in blocks_of(PAGE) if kind == "yaml"]
    (tmp_path / "job.yaml").write_text(example)
    assert settings_of(tmp_path, "alerts").health_window == 30.0
    (tmp_path / "job.yaml").write_text(shared)
    assert LightSettings.of(
        {"shared_reading": settings_of(tmp_path, "alerts").options["shared_reading"]}
    ).shared_reading
    (tmp_path / "job.yaml").write_text(spark)
    assert settings_of(tmp_path, "alerts").options["conf"] == {"spark.executor.memory": "4g", "spark.cores.max": 8}
    (tmp_path / "job.yaml").write_text(plugins)
    assert settings_of(tmp_path, "alerts").plugins == ("acme_sinks-1.2.0-py3-none-any.whl",)
    (tmp_path / "job.yaml").write_text(schedule)
    assert schedule_of(settings_of(tmp_path, "alerts")) is not None
    options = text[text.index("### Schedules") : text.index("`headrace start NAME` runs the job now")]
    assert set(re.findall(r"^\| `(\w+)`", options, re.MULTILINE)) | {"catch_up_max"} == set(
        ScheduleSettings.__struct_fields__
    )
    assert yaml.safe_load(example)["secrets"] == ["DB_PASSWORD"]


def test_the_pages_name_every_command_of_the_package() -> None:
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in (PAGE, "docs/server-access.md"))
    added = [
        each for each in metadata.entry_points(group="headrace.commands") if each.value.startswith("headrace_server.")
    ]
    assert len(added) >= 14
    for entry in added:
        command = get_command(entry.load())
        for name in getattr(command, "commands", {entry.name: command}):
            whole = entry.name if name == entry.name else f"{entry.name} {name}"
            assert f"headrace {whole}" in text or f"`{whole}`" in text, whole
