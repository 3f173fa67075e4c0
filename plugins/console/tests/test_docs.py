"""The pages about plug-ins and the command line say what is so: hooks, options and examples are compared and run."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import typer.main
from headrace.interfaces import hookspecs
from headrace.interfaces.settings import describe_options
from headrace.interfaces.sink import SinkSettings
from headrace_console.app import app
from headrace_print.sink import PrintSettings

DOCS = Path(__file__).parents[3] / "docs"
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def hooks() -> dict[str, str]:
    """Return the arguments of every hook, as the pages show them."""
    specs = {name: f for name, f in vars(hookspecs).items() if inspect.isfunction(f) and hasattr(f, "headrace_spec")}
    return {name: ", ".join(inspect.signature(function).parameters) for name, function in specs.items()}


def section(text: str, heading: str) -> str:
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"there is no section {heading!r}"
    return found[1]


# -------------------------------------------------------------------------------------------------------------- hooks


def test_there_are_hooks_to_compare() -> None:
    assert {"headrace_sources", "headrace_optimize", "headrace_job_stopped"} <= set(hooks())


@pytest.mark.parametrize(("name", "arguments"), sorted(hooks().items()))
def test_every_hook_is_documented_with_its_exact_arguments(name: str, arguments: str) -> None:
    assert len(section(page("writing-plugins.md"), f"### {name}({arguments})").strip()) > 40


def test_no_hook_is_documented_that_does_not_exist() -> None:
    documented = re.findall(r"^### (headrace_\w+)\((.*)\)$", page("writing-plugins.md"), re.MULTILINE)
    assert dict(documented) == hooks()


# ----------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_documented_with_every_option(command: str) -> None:
    text = page("command-line.md")
    assert f"[`headrace {command}`](#headrace-{command})" in text
    own = section(text, f"## headrace {command}")
    options = [
        param for param in COMMANDS[command].params if param.param_type_name == "option" and param.name != "help"
    ]
    for option in options:
        flags = ", ".join(f"`{flag}`" for flag in option.opts)
        assert f"| {flags} | " in own, f"{command} {flags}"
    documented = re.findall(r"^\| `(--[\w-]+)`", own, re.MULTILINE)
    assert documented == [option.opts[0] for option in options if option.opts[0] in documented]
    assert len(documented) == len(options)


def test_every_option_of_the_print_sink_is_documented() -> None:
    text = page("connectors/print.md")
    shared = set(SinkSettings.__struct_fields__)
    own = [option for option in describe_options(PrintSettings) if option.name not in shared]
    for option in own:
        default = "none" if option.default == "None" else f"`{option.default}`"
        assert f"| `{option.name}` | {default} | " in text
    assert re.findall(r"^\| `(\w+)` ", text, re.MULTILINE) == [option.name for option in own]


# ----------------------------------------------------------------------------------------------------------- examples


def test_examples_of_the_plugin_page_run(tmp_path: Path) -> None:
    """All Python blocks, in order, are one test module: it runs the jobs and the contracts of the page."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page("writing-plugins.md"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 8
    (tmp_path / "test_examples.py").write_text("\n".join(blocks), encoding="utf-8")
    options = ("-q", "-p", "no:cacheprovider", "-p", "tests.seldom_kills", "-W", "error")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_examples.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 40  # type: ignore[index]
    assert rows_in(tmp_path / "rows.ndjson") == [{"a": 2}, {"a": 3}]
    assert rows_in(tmp_path / "sample.ndjson") == [{"number": number} for number in range(0, 1000, 100)]


def rows_in(path: Path) -> list[object]:
    """Return the rows, each once: the contracts start processes, which import the examples and run them again."""
    return [json.loads(line) for line in dict.fromkeys(path.read_text().splitlines())]


def test_the_sink_in_ten_lines_has_ten_lines() -> None:
    (block,) = re.findall(
        r"```python\n(.*?)```", section(page("writing-plugins.md"), "## A sink in ten lines"), re.DOTALL
    )[:1]
    assert len([line for line in block.splitlines() if line.strip()]) <= 10


def test_the_options_example_says_what_is_so(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", section(page("writing-plugins.md"), "### Options"), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile("import headrace as hr\n" + blocks[0], "example", "exec", dont_inherit=True), names)
    settings = names["settings"]
    assert isinstance(settings, msgspec.Struct)
    shown = repr(settings)
    assert "urgency=4" in shown
    assert "memory_max_bytes=2097152" in shown
    assert "PAGER_PASSWORD" not in shown
