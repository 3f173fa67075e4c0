"""``headrace plugins`` and ``headrace version``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from textwrap import dedent
from typing import Any

import headrace as hr
import pytest
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import describe_options
from headrace_print.sink import PrintSettings
from typer.testing import Result

Command = Callable[..., Result]

SAMPLE = """
    from typing import Annotated
    import headrace as hr

    class RadioSettings(hr.Settings, frozen=True, kw_only=True):
        station: Annotated[str, hr.option("which one to hear")]
        volume: Annotated[int, hr.option("how loud, in per cent", ge=0)] = 50
        password: Annotated[hr.Secret | None, hr.option("of the station")] = None

    class Radio(hr.Source):
        '''Hears a station.

        Not shown in a summary.
        '''
        Settings = RadioSettings
        def __init__(self, settings): ...
        def queues(self): return []
        def open(self, queue, start): ...

    class Loud(hr.OperatorSpec):
        '''Makes rows loud.'''
        def __init__(self, column, *, times=2, functions=None): ...
        def output_schema(self, schema, output=""): return schema
        def open(self, schema): ...

    @hr.udf
    def shout(text: str) -> str:
        '''Shouts.'''
        return text.upper()

    @hr.hookimpl
    def headrace_sources():
        return {"radio": Radio, "television": "sample_plugin.missing:Television", "telex": "sample_plugin:Telex"}

    @hr.hookimpl
    def headrace_operators():
        return {"loud": Loud}

    @hr.hookimpl
    def headrace_functions():
        return {"shout": shout}
"""


@pytest.fixture
def sample_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two plug-ins besides those installed: one with something of everything, one that cannot be imported."""
    (tmp_path / "sample_plugin.py").write_text(dedent(SAMPLE))
    (tmp_path / "broken_plugin.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = [EntryPoint(name, f"{name}_plugin", "headrace") for name in ("sample", "broken")]
    found = [entry for entry in metadata.entry_points(group="headrace") if entry.name in ("print", "light")]

    def entries(*, group: str, **selected: Any) -> EntryPoints:
        assert group in ("headrace", "headrace.commands")
        return EntryPoints([*found, *own] if group == "headrace" else []).select(**selected)

    monkeypatch.setattr(metadata, "entry_points", entries)
    monkeypatch.setattr("headrace.interfaces.registry.entry_points", entries)
    default_registry.cache_clear()
    yield
    default_registry.cache_clear()
    sys.modules.pop("sample_plugin", None)


@pytest.mark.usefixtures("sample_plugins")
class TestWithSamplePlugins:
    def test_everything_installed_is_listed_also_what_is_broken(self, headrace: Command) -> None:
        result = headrace("plugins")
        assert result.exit_code == 0
        lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
        assert lines[0] == "plug-in distribution version offers"
        assert f"headrace headrace {hr.__version__} codecs: csv, json, raw" in lines
        assert "print headrace-print 0.1.0 sink: print" in lines
        assert "light headrace-light 0.1.0 state store: directory" in lines
        assert "backend: light" in lines
        at = lines.index("sample sample_plugin sources: radio, television, telex")
        assert lines[at + 1 : at + 3] == ["operator: loud", "function: shout"]
        broken = next(line for line in lines if line.startswith("broken"))
        assert "cannot be loaded: ModuleNotFoundError: No module named 'a_module_that_nobody_has'" in broken

    def test_a_plugin_shows_all_that_it_offers_with_options(self, headrace: Command) -> None:
        # The broken plug-in does not matter to what another one offers.
        result = headrace("plugins", "sample")
        assert result.exit_code == 0
        lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
        at = lines.index("source radio .from_radio(station, …)")
        assert lines[at + 1 : at + 7] == [
            "Hears a station.",
            "",
            "option type default what it is",
            "station str required which one to hear",
            "volume int 50 how loud, in per cent",
            "password Secret | None None of the station",
        ]
        assert "operator loud .loud(column, *, times=2)" in lines
        assert "Makes rows loud." in lines
        assert "function shout shout(text) → string" in lines
        assert "Shouts." in lines
        assert "Not shown" not in result.stdout

    def test_what_needs_a_module_that_is_not_there_says_so(self, headrace: Command) -> None:
        lines = headrace("plugins", "sample").stdout.splitlines()
        at = lines.index("source telex")
        assert lines[at + 1] == "  cannot be loaded: AttributeError: module 'sample_plugin' has no attribute 'Telex'"
        at = lines.index("source television")
        assert "needs the module 'sample_plugin.missing', which is not installed" in lines[at + 1]

    def test_a_thing_is_found_by_its_own_name(self, headrace: Command) -> None:
        lines = headrace("plugins", "radio").stdout.splitlines()
        assert lines[0] == "sample  sample_plugin "
        assert "source radio   .from_radio(station, …)" in lines
        assert not any(".loud(" in line for line in lines)

    def test_a_broken_plugin_says_why(self, headrace: Command) -> None:
        result = headrace("plugins", "broken")
        assert result.exit_code == 0
        assert "cannot be loaded: ModuleNotFoundError: No module named 'a_module_that_nobody_has'" in result.stdout

    def test_an_unknown_name_has_a_hint(self, headrace: Command) -> None:
        result = headrace("plugins", "telvision")
        assert result.exit_code == 2
        assert result.stderr.startswith("error: no plug-in 'telvision' is installed, and no plug-in offers it")
        assert "did you mean 'television'?" in result.stderr


def test_every_option_of_a_sink_is_shown(headrace: Command) -> None:
    shown = headrace("plugins", "print").stdout
    own, _, of_every_sink = shown.partition("options of every sink")
    for option in describe_options(PrintSettings):
        place = own if option.name in ("format", "target", "limit", "json_columns") else of_every_sink
        assert f"{option.name} " in place
        assert option.description in " ".join(place.split())


def test_formats_are_shown(headrace: Command) -> None:
    result = headrace("plugins", "json")
    assert 'codec json   format="json"' in result.stdout
    assert "timestamp_unit" in result.stdout


def test_backends_are_shown(headrace: Command) -> None:
    result = headrace("plugins", "light")
    assert 'job.run(backend="light"), headrace run --backend light' in result.stdout
    assert "retry_timeout" in result.stdout


def test_two_distributions_with_one_plugin_are_an_error(headrace: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    class OtherDistribution:
        name = "headrace-other"
        version = "1"

    theirs = next(iter(metadata.entry_points(group="headrace", name="print")))
    ours = EntryPoint("print", "other", "headrace")
    vars(ours).update(dist=OtherDistribution())
    monkeypatch.setattr("headrace.interfaces.registry.entry_points", lambda group: EntryPoints([ours, theirs]))
    default_registry.cache_clear()
    try:
        result = headrace("plugins")
    finally:
        default_registry.cache_clear()
    assert result.exit_code == 2
    assert "two installed distributions offer the plug-in 'print'" in result.stderr
    assert "headrace-other" in result.stderr


def test_versions(headrace: Command) -> None:
    lines = headrace("version").stdout.splitlines()
    assert lines[0].startswith(f"headrace {hr.__version__} (Python {sys.version_info.major}.")
    assert "  headrace-console 0.1.0" in lines
    assert "  headrace-print 0.1.0" in lines
