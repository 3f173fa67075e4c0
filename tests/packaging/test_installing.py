"""Core and one connector, installed alone in an empty environment, do what they can and say what is missing."""

from __future__ import annotations

import re
import subprocess
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import headrace
import pytest
from packaging.requirements import Requirement

from tests.packaging.wheels import DISTRIBUTIONS, ROOT, build_wheels_here, installed

SCRIPT = """
import sys
import headrace as hr
from datetime import timedelta
from headrace.foundation.errors import MissingPluginError

stream = hr.stream("t", "alone").from_file(sys.argv[1], format="json", schema={"a": "int64"})
job = stream.to_file(sys.argv[2], format="json")
for what in (job.run, lambda: job.run(backend="light"), lambda: stream.where("a > 1"), lambda: stream.to_kafka("x")):
    try:
        what()
    except MissingPluginError as error:
        print(str(error).replace("\\n", " "))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build_wheels_here(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, wheels: Sequence[Path]) -> Path:
    return installed(tmp_path_factory.mktemp("empty") / "venv", "headrace", "headrace-file", wheels=wheels)


def test_core_and_a_connector_alone_say_what_to_install(python: Path, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"a": 1}\n')
    command = [str(python), "-c", SCRIPT, str(tmp_path / "in.ndjson"), str(tmp_path / "out")]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.splitlines()
    assert [line.partition("pip install ")[2] for line in found] == [
        "headrace-spark", "headrace-light", "headrace-columnar", "headrace-kafka",
    ]  # fmt: skip


def test_core_and_a_connector_alone_read_a_file(python: Path, tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"a": 1}\n{"a": 2}\n')
    code = """
import sys
from datetime import timedelta
from headrace import EARLIEST
from headrace.interfaces.registry import default_registry
source_class = default_registry().find("source", "file")
source = source_class(source_class.Settings.of({"path": sys.argv[1]}))
[queue] = source.queues()
reader = source.open(queue, EARLIEST)
print([bytes(body) for body in reader.poll(10, timedelta(0)).bodies])
"""
    command = [str(python), "-c", code, str(tmp_path / "in.ndjson")]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout.strip() == """[b'{"a": 1}', b'{"a": 2}']"""


@pytest.mark.slow  # it installs Spark anew; `make wheels` runs it
@pytest.mark.timeout(900)
def test_everything_is_installed_by_the_extra_all(tmp_path: Path, wheels: Sequence[Path]) -> None:
    python = installed(tmp_path / "venv", "headrace[all]", wheels=wheels)
    code = "import importlib.metadata as m; print(*sorted(d.name for d in m.distributions()))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert {project_of(each)["name"] for each in DISTRIBUTIONS} <= set(found.split())
    (tmp_path / "in.ndjson").write_text('{"a": 1}\n{"a": 2}\n{"a": 2}\n')
    (tmp_path / "job.sql").write_text("""
        CREATE TABLE numbers (a BIGINT) WITH ('connector' = 'file', 'path' = 'in.ndjson', 'format' = 'json');
        CREATE TABLE counts (a BIGINT, n BIGINT) WITH ('connector' = 'print');
        INSERT INTO counts SELECT a, COUNT(*) FROM numbers GROUP BY a;
    """)
    headrace = str(python.with_name("headrace"))
    command = [headrace, "run", "job.sql", "--backend", "light", "--until", "end"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert '"a":2,"n":2' in run.stdout.replace(" ", ""), run.stdout + run.stderr


def test_every_wheel_holds_the_license_and_the_notice(wheels: Sequence[Path]) -> None:
    assert len(wheels) == len(DISTRIBUTIONS)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            held = {name.rpartition("/")[2]: name for name in archive.namelist() if ".dist-info/licenses/" in name}
            for name in ("LICENSE", "NOTICE"):
                assert archive.read(held[name]) == (ROOT / name).read_bytes(), (wheel.name, name)
            assert any(name.endswith("/py.typed") for name in archive.namelist()), wheel.name


def project_of(directory: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    return project


@pytest.mark.parametrize("directory", DISTRIBUTIONS, ids=lambda path: path.name)
def test_every_distribution_says_the_same_of_itself(directory: Path) -> None:
    project, core = project_of(directory), project_of(ROOT / "core")
    for same in ("license", "license-files", "requires-python", "version", "authors", "classifiers", "urls"):
        assert project[same] == core[same], same
    assert project["version"] == headrace.__version__
    module = project["name"].replace("-", "_")
    assert (directory / "src" / module / "py.typed").exists()
    assert (directory / project["readme"]).exists()
    assert (directory / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (directory / "NOTICE").read_text() == (ROOT / "NOTICE").read_text()
    entries = project.get("entry-points", {}).get("headrace", {})
    assert all(target.startswith(module) for target in entries.values())


def test_distributions_need_the_same_versions_of_each_other_and_of_others() -> None:
    wanted: dict[str, set[str]] = {}
    for directory in DISTRIBUTIONS:
        project = project_of(directory)
        extras = project.get("optional-dependencies", {}).values()
        for text in (*project["dependencies"], *(each for extra in extras for each in extra)):
            requirement = Requirement(text)
            wanted.setdefault(requirement.name, set()).add(str(requirement.specifier))
    assert {name: texts for name, texts in wanted.items() if len(texts) > 1} == {}
    assert {texts.pop() for name, texts in wanted.items() if name.startswith("headrace")} == {"~=0.1"}


@pytest.mark.parametrize("directory", DISTRIBUTIONS, ids=lambda path: path.name)
def test_what_holds_the_columns_has_an_upper_bound(directory: Path) -> None:
    """A new major version of these changes results or types; others are held by their own promises."""
    project = project_of(directory)
    extras = project.get("optional-dependencies", {}).values()
    for text in (*project["dependencies"], *(each for extra in extras for each in extra)):
        requirement = Requirement(text)
        if requirement.name in ("msgspec", "numpy", "polars", "pyarrow", "pyspark", "sqlglot"):
            operators = {each.operator for each in requirement.specifier}
            assert operators == {">=", "<"}, text


def test_a_distribution_that_imports_what_holds_the_columns_names_it() -> None:
    """What comes along with another package today may be gone with its next version."""
    only_types = {("headrace", "pyarrow")}
    for directory in DISTRIBUTIONS:
        project = project_of(directory)
        extras = project.get("optional-dependencies", {}).values()
        named = {Requirement(each).name for each in (*project["dependencies"], *(e for extra in extras for e in extra))}
        sources = "\n".join(path.read_text() for path in (directory / "src").rglob("*.py"))
        for name in ("msgspec", "numpy", "polars", "pyarrow"):
            imported = re.search(rf"^ *(import|from) {name}\b", sources, re.MULTILINE)
            assert not imported or name in named or (project["name"], name) in only_types, (project["name"], name)


def test_the_license_is_whole_and_the_notice_names_the_model() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text
    assert "APPENDIX: How to apply the Apache License to your work." in text
    assert "inspired by Apache RocketMQ Streams" in (ROOT / "NOTICE").read_text()


def test_extras_of_core_name_every_plugin() -> None:
    extras = project_of(ROOT / "core")["optional-dependencies"]
    names = {directory.name for directory in DISTRIBUTIONS} - {"core"}
    assert set(extras) == {*names, "all", "edge"}
    assert {Requirement(each).name.removeprefix("headrace-") for each in extras["edge"]} < names
    assert {Requirement(each).name for each in extras["all"]} == {f"headrace-{name}" for name in names}
    assert all(f"headrace-{name}~=0.1" in extras[name] for name in names)
