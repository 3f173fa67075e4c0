"""What is found in a directory of jobs, and what its versions consist of."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace.foundation.errors import JobError, OptionError
from headrace_server.jobs_directory.scanning import FoundJob, scan
from headrace_server.jobs_directory.settings import JobSettings, settings_of
from headrace_server.jobs_directory.versions import VersionFiles


def found_in(directory: Path) -> dict[str, FoundJob]:
    found, unusable = scan(directory)
    assert unusable == []
    return {each.name: each for each in found}


def test_jobs_lie_in_the_directory_and_in_its_folders(tmp_path: Path) -> None:
    for name in ("orders.py", "team/clicks.sql", "team/_shared.py", ".hidden.py", "team/deeper/no.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert sorted(found_in(tmp_path)) == ["orders", "team/clicks"]


def test_a_version_has_the_files_beside_the_job_but_not_other_jobs(tmp_path: Path) -> None:
    for name in (
        "a.py",
        "b.py",
        "_shared.py",
        "rules.yaml",
        "_library/part.py",
        "other/c.py",
        "job.yaml",
        "__pycache__/a.pyc",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}" if name == "job.yaml" else "x")
    assert sorted(found_in(tmp_path)["a"].files) == ["_library/part.py", "_shared.py", "a.py", "rules.yaml"]


def test_the_hash_changes_with_the_file_a_helper_or_a_setting_and_with_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "_shared.py").write_text("x")
    hashes = [found_in(tmp_path)["a"].content_hash]
    for name, text in (("a.py", "y"), ("_shared.py", "y"), ("job.yaml", "labels: {team: one}")):
        (tmp_path / name).write_text(text)
        hashes.append(found_in(tmp_path)["a"].content_hash)
    assert len(set(hashes)) == 4
    (tmp_path / "b.py").write_text("another job")
    (tmp_path / "job.yaml").write_text("# a comment\nlabels:\n  team: one\n")
    assert found_in(tmp_path)["a"].content_hash == hashes[-1]


def test_settings_of_a_job_are_those_of_its_folder_and_its_own(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "backend: light\nlabels: {team: one, tier: low}\nhealth_timeout: 2 min\nmemory_max_bytes: 512 MiB\n"
        "jobs:\n  a:\n    labels: {tier: high}\n    options: {shards: 4}\n"
    )
    assert settings_of(tmp_path, "a") == JobSettings(
        labels={"team": "one", "tier": "high"},
        options={"shards": 4},
        health_timeout=120.0,
        memory_max_bytes=512 * 1024**2,
    )
    assert settings_of(tmp_path, "b").labels == {"team": "one", "tier": "low"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bakend: light", "did you mean 'backend'"),
        ("options: {checkpoint: /tmp/x}", "the server itself sets 'checkpoint'"),
        ("memory_max_bytes: much", "job.yaml"),
        ("health_timeout: 0 s", "longer than 0"),
        ("group: g\nbackend: spark", "only jobs on light can share a process"),
        ("secrets: ['A B']", "not the name of an environment variable"),
        ("group: ../x", "is not a name"),
        ("[1, 2]", "must be a mapping"),
        ("a: [", "is not YAML"),
        ("jobs: {a: 3}", "must be a mapping"),
        ("until: tomorrow", "job.yaml"),
    ],
)
def test_settings_that_are_wrong_are_refused_with_the_file_and_the_job(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(OptionError, match=r"job\.yaml") as caught:
        settings_of(tmp_path, "a")
    assert message in str(caught.value)
    assert caught.value.job == "a"


def test_what_cannot_be_a_job_is_told_and_does_not_hide_the_others(tmp_path: Path) -> None:
    for name in ("good.py", "two words.py", "twice.py", "twice.sql"):
        (tmp_path / name).write_text("x")
    found, unusable = scan(tmp_path)
    assert [each.name for each in found] == ["good"]
    assert {each.name for each in unusable} == {"two words", "twice"}


def test_a_pipeline_is_told_from_other_yaml_by_its_keys(tmp_path: Path) -> None:
    pipeline = "name: a\nsources: {}\nsinks: {}\n"
    for name, text in (
        ("orders.yaml", pipeline), ("clicks.yml", "steps: [\n"), ("rules.yaml", "- id: sources\n  expression: a > 1\n"),
        ("sigma.yml", "title: x\ndetection: {}\n"), ("_shared.yaml", pipeline), ("job.yaml", "labels: {sinks: none}\n"),
        ("two.py", "x"), ("two.yaml", "- id: x\n  expression: a > 1\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
    found = found_in(tmp_path)
    assert {name: each.file.name for name, each in found.items()} == {
        "clicks": "clicks.yml", "orders": "orders.yaml", "two": "two.py",
    }  # fmt: skip
    assert sorted(found["orders"].files) == ["_shared.yaml", "orders.yaml", "rules.yaml", "sigma.yml", "two.yaml"]


def test_a_pipeline_cannot_have_the_name_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\nsources: {}\nsinks: {}\n")
    found, [unusable] = scan(tmp_path)
    assert found == []
    assert unusable.name == "job"
    assert "job.yaml is the name of the settings file, and this one holds a pipeline" in unusable.reason


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "jobs" / "a.py").write_text("x")
    (tmp_path / "jobs" / "_link").symlink_to(tmp_path / "secret")
    _, [unusable] = scan(tmp_path / "jobs")
    assert "leads out of the job's folder" in unusable.reason


def test_a_version_that_was_changed_afterwards_is_refused(tmp_path: Path) -> None:
    versions = VersionFiles(tmp_path)
    hashes = versions.store("team/a", 1, {"a.py": b"x", "_library/part.py": b"y"})
    assert versions.check("team/a", 1, hashes) == tmp_path / "team" / "a" / "1"
    assert versions.contents("team/a", 1) == {"a.py": "x", "_library/part.py": "y"}
    (tmp_path / "team/a/1/_library/part.py").write_text("z")
    with pytest.raises(JobError, match="was changed after it was stored"):
        versions.check("team/a", 1, hashes)


def test_what_cannot_be_stored_leaves_nothing_however_often_it_is_tried(tmp_path: Path) -> None:
    versions = VersionFiles(tmp_path)
    for _ in range(3):
        with pytest.raises(OSError, match="too long"):
            versions.store("team/a", 1, {"a.py": b"x", "_library/" + "n" * 300: b"y"})
    assert list((tmp_path / "team" / "a").iterdir()) == []


def test_a_large_file_of_yaml_is_data_and_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    large = tmp_path / "data.yaml"
    with open(large, "wb") as file:
        file.truncate(1 << 40)  # a hole, which takes no room on the disk and none has in memory
    found, [unusable] = scan(tmp_path)
    assert found == []
    assert "the files beside the job are larger" in unusable.reason
