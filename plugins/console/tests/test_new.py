"""``headrace new``: what it makes installs and passes its tests in an environment made for it."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from headrace_console import projects
from typer.testing import Result

Command = Callable[..., Result]

WORKSPACE = Path(__file__).parents[3]
KINDS = (
    "sink",
    "source",
    "connector",
    "udf",
    "operator",
    "stateful-operator",
    "codec",
    "state-store",
    "language",
    "backend",
)
#: Packages of the workspace that a plug-in's author has: headrace, the contract suite, and the command.
PACKAGES = ("core", "plugins/contract", "plugins/console")
#: What a project of a kind needs beside them.
NEEDED = {
    "language": ("plugins/columnar", "plugins/light", "connectors/file"),
    "backend": ("plugins/columnar", "plugins/light"),
}


def identifier_of(kind: str) -> str:
    return f"fresh_{kind.replace('-', '_')}"


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing in it but the packages of an author, built from the workspace."""
    place = tmp_path_factory.mktemp("author") / "venv"
    run(sys.executable, "-m", "venv", place)
    install(place, *(WORKSPACE / package for package in PACKAGES), "pytest")
    return place


def install(environment: Path, *packages: str | Path) -> None:
    """Install packages as an author does, with uv where it is at hand, which is quicker; ``-e`` may stand before one."""
    interpreter = environment / "bin" / "python"
    if find_spec("uv") is not None:
        run(sys.executable, "-m", "uv", "pip", "install", "-q", "--python", interpreter, *packages)
    else:
        run(interpreter, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)


def uninstall(environment: Path, distribution: str) -> None:
    """Take a project out of an environment: its files are removed with the test, and what is left could not be loaded."""
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "uninstall", "-q", "-y", "--disable-pip-version-check", distribution)


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    # Nothing of the environment that these tests run in may help.
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "PYTEST_ADDOPTS")
    clean = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=clean, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.mark.slow  # every run has one of the projects below, which needs no index
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_installs_and_passes_its_tests_at_once(kind: str, environment: Path, tmp_path: Path) -> None:
    run(environment / "bin" / "headrace", "new", kind, f"fresh-{kind}", cwd=tmp_path)
    project = tmp_path / f"headrace-fresh-{kind}"
    install(environment, *(WORKSPACE / package for package in NEEDED.get(kind, ())), "-e", project)
    done = run(environment / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    last = done.stdout.strip().splitlines()[-1]
    assert " passed" in last
    assert "failed" not in last
    shown = run(environment / "bin" / "headrace", "plugins", identifier_of(kind)).stdout
    uninstall(environment, f"headrace-fresh-{kind}")
    assert shown.startswith(f"{identifier_of(kind)}  headrace-fresh-{kind} 0.1.0")
    assert identifier_of(kind) in shown.partition("\n")[2]


@pytest.fixture(scope="session")
def second_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has what these tests have and a pip of its own, so that a project can be installed into it."""
    place = tmp_path_factory.mktemp("clone") / "venv"
    run(sys.executable, "-m", "venv", place)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = site.getsitepackages()
    lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in packages)
    (place / "lib" / version / "site-packages" / "of_the_tests.pth").write_text(lines)
    return place


# That of a sink in every run; all of them are typed, linted and have their names checked below.
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "sink" else pytest.mark.slow) for kind in KINDS]
)
def test_the_printed_steps_work_from_a_clone_without_an_index(
    kind: str, second_environment: Path, tmp_path: Path
) -> None:
    """As in the environment that ``make setup`` makes, by the letter; pip may ask no index."""
    begun = run(
        second_environment / "bin" / "python",
        "-c",
        "from headrace_console.command import main; main()",
        "new",
        kind,
        f"offline-{kind}",
        cwd=tmp_path,
    )
    steps = begun.stderr.partition("\nnext:\n")[2]
    assert "pip install --no-build-isolation -e" in steps
    script = f"export PATH={second_environment / 'bin'}:$PATH PIP_NO_INDEX=1 PYTHONDONTWRITEBYTECODE=1\n{steps}"
    done = run(
        "bash",
        "-euo",
        "pipefail",
        "-c",
        script.replace("  pytest\n", "  python -m pytest -p no:cacheprovider\n"),
        cwd=tmp_path,
    )
    uninstall(second_environment, f"headrace-offline-{kind}")
    last = done.stdout.strip().splitlines()[-1]
    assert " passed" in last
    assert "failed" not in last


@pytest.mark.slow
def test_what_it_makes_is_typed_and_formatted(headrace: Command, tmp_path: Path) -> None:
    for kind in KINDS:
        assert headrace("new", kind, f"typed-{kind}").exit_code == 0
    made = [tmp_path / f"headrace-typed-{kind}" for kind in KINDS]
    rules = ["--isolated", "--line-length", "120", "--no-cache"]
    for project in made:
        run(sys.executable, "-m", "ruff", "check", *rules, "--select", "E,F,I,B,UP", ".", cwd=project)
        run(sys.executable, "-m", "ruff", "format", "--check", *rules, ".", cwd=project)
    sources = [project / "src" for project in made]
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    run(
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        tmp_path / "mypy.ini",
        "--cache-dir",
        tmp_path / "cache",
        *sources,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_files_and_metadata(kind: str, headrace: Command, tmp_path: Path) -> None:
    result = headrace("new", kind, "my-thing", "--directory", tmp_path / "here")
    assert result.exit_code == 0
    modules = {"udf": ["functions"], "connector": ["sink", "source"]}.get(kind, [kind.replace("-", "_")])
    written = {str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*") if path.is_file()}
    assert written == {
        ".gitignore", "README.md", "pyproject.toml",
        "src/headrace_my_thing/__init__.py", "src/headrace_my_thing/plugin.py", "src/headrace_my_thing/py.typed",
        *(f"src/headrace_my_thing/{module}.py" for module in modules), *(f"tests/test_{module}.py" for module in modules),
    }  # fmt: skip
    declared = tomllib.loads((tmp_path / "here" / "pyproject.toml").read_text())["project"]
    assert declared["name"] == "headrace-my-thing"
    assert declared["entry-points"] == {"headrace": {"my_thing": "headrace_my_thing.plugin"}}
    assert not [path for path in written if "{{" in (tmp_path / "here" / path).read_text()]
    assert f"cd {tmp_path / 'here'}" in result.stderr


def test_the_next_steps_find_the_contract_suite(
    headrace: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """headrace from a clone: the suite is there too. From an index: pip finds it there. Where it is installed nothing is said."""
    assert "plugins/contract" not in headrace("new", "sink", "one").stderr
    monkeypatch.setattr(projects, "find_spec", lambda name: None)
    told = headrace("new", "sink", "two").stderr
    assert f"  pip install {WORKSPACE / 'plugins' / 'contract'}\n" in told
    assert '  pip install -e ".[test]"\n' in told
    beside = [WORKSPACE / package for package in ("plugins/contract", *NEEDED["language"])]
    assert f"  pip install {' '.join(map(str, beside))}\n" in headrace("new", "language", "three").stderr
    noted: dict[str, str | None] = {}

    class Installed:
        def read_text(self, name: str) -> str | None:
            return noted.get(name)

    monkeypatch.setattr(projects, "distribution", lambda name: Installed())
    assert projects.package_beside("plugins/contract") is None
    noted["direct_url.json"] = '{"url": "https://example.org/headrace-0.1.0-py3-none-any.whl"}'
    assert projects.package_beside("plugins/contract") is None
    (tmp_path / "a b").mkdir()
    suite = tmp_path / "a b" / "headrace_contract-0.1.0-py3-none-any.whl"
    noted["direct_url.json"] = json.dumps({"url": (suite.parent / "headrace-0.1.0-py3-none-any.whl").as_uri()})
    assert projects.package_beside("plugins/contract") is None
    suite.touch()
    assert projects.package_beside("plugins/contract") == suite


@pytest.mark.parametrize(
    "name",
    ["", "My-Sink", "1st", "my_sink", "my--sink", "-sink", "sink-", "söhne", "a b", "../up", "a/b", "x" * 41, "a\nb"],
)
def test_names_that_are_none(headrace: Command, tmp_path: Path, name: str) -> None:
    result = headrace("new", "sink", "--", name)
    assert result.exit_code == 2
    assert "cannot be the name of a plug-in" in result.stderr
    assert "use a-z, 0-9 and single dashes" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("sink", "print", "the plug-in 'print' is installed already: headrace-print"),
        ("sink", "class", "'class' is a reserved word of Python"),
        ("operator", "where", "the operator 'where' exists already: plug-in 'columnar' offers it"),
        ("operator", "union", "a verb cannot be called 'union'"),
        ("operator", "to-upper", "a verb cannot be called 'to_upper'"),
    ],
)
def test_names_that_are_taken(headrace: Command, tmp_path: Path, kind: str, name: str, message: str) -> None:
    result = headrace("new", kind, name)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "choose another name" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(headrace: Command, tmp_path: Path) -> None:
    (tmp_path / "headrace-fine").mkdir()
    assert headrace("new", "sink", "fine").exit_code == 0
    before = (tmp_path / "headrace-fine" / "pyproject.toml").read_text()
    result = headrace("new", "source", "fine")
    assert result.exit_code == 2
    assert "headrace-fine exists already and is not empty" in result.stderr
    assert (tmp_path / "headrace-fine" / "pyproject.toml").read_text() == before


def test_an_unknown_kind(headrace: Command) -> None:
    result = headrace("new", "sinc", "x")
    assert result.exit_code == 2
    assert "sink" in result.stderr


def test_every_template_is_shipped_and_used() -> None:
    """A placeholder without a value raises, and every file of the template folders is written for some kind."""
    place = Path(projects.__file__).with_name("templates")
    on_disk = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert all(name.endswith(".template") for name in on_disk)
    used = {
        str(path) for kind in KINDS for path, _ in projects.rendered(kind, projects.template_values(kind, "a-name"))
    }
    assert len(used) == len({name.partition("/")[2] for name in on_disk})
