"""What is installed: ``headrace plugins`` and ``headrace version``."""

from __future__ import annotations

import inspect
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import headrace
from headrace.flow.schema import type_name
from headrace.foundation.errors import HeadraceError, MissingPluginError, did_you_mean
from headrace.interfaces.functions import AggregateFunction, ScalarFunction, TableFunction, resolve
from headrace.interfaces.registry import GROUP, HOOKS, Registry, default_registry
from headrace.interfaces.settings import OptionHelp, Settings, describe_options
from headrace.interfaces.sink import SinkSettings
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: The plug-in name for everything that core itself offers.
BUILT_IN = "headrace"
#: Width of tables, in characters, if standard output is not a terminal.
_WIDTH_WITHOUT_TERMINAL = 120


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """An installed plug-in."""

    name: str
    distribution: str
    version: str
    #: A registry with this plug-in only, so that errors of other plug-ins do not matter. None: the plug-in cannot be loaded.
    registry: Registry | None
    #: Why it cannot be loaded; None if it can.
    error: str | None = None

    def offers(self) -> dict[str, list[str]]:
        """Return the names that the plug-in offers, by kind. Classes that it offers as a text are not imported."""
        if self.registry is None:
            return {}
        hooks = self.registry.load_all()
        return {
            kind: sorted(implementation.function())
            for kind, hook in HOOKS.items()
            for implementation in getattr(hooks, hook).get_hookimpls()
            if implementation.plugin_name == self.name
        }


def installed() -> list[PluginEntry]:
    """Return every installed plug-in, the one of core first. A plug-in that cannot be loaded has an ``error``."""
    default_registry()  # raises if two distributions have the same plug-in name: every command must show that error
    found = {entry.name: entry for entry in metadata.entry_points(group=GROUP)}
    built_in = PluginEntry(BUILT_IN, "headrace", headrace.__version__, Registry([]))
    return [built_in, *(_load(found[info.name]) for info in default_registry().installed())]


def _load(entry: metadata.EntryPoint) -> PluginEntry:
    distribution = entry.dist.name if entry.dist else entry.value
    version = entry.dist.version if entry.dist else ""
    registry = Registry([entry])
    try:
        registry.load_all()
    except HeadraceError as error:
        cause = error.__cause__ or error
        return PluginEntry(entry.name, distribution, version, None, f"{type(cause).__name__}: {cause}")
    return PluginEntry(entry.name, distribution, version, registry)


def show_installed() -> None:
    """Print a table of the installed plug-ins."""
    table = _table("plug-in", "distribution", "version", "offers")
    for entry in installed():
        if entry.error is not None:
            offers = Text(f"cannot be loaded: {entry.error}", style="red")
        else:
            offers = Text("\n".join(_offer_lines(entry.offers())))
        table.add_row(entry.name, entry.distribution, entry.version, offers)
    console = _console()
    console.print(table)
    console.print(Text("headrace plugins NAME shows all options of a plug-in.", style="dim"))


def _offer_lines(offers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for kind, names in offers.items():
        shown = ", ".join(names) if len(names) <= 12 else ", ".join(names[:12]) + f", … ({len(names)} in all)"
        yield f"{kind if len(names) == 1 else kind + 's'}: {shown}"


def show_plugin(name: str) -> None:
    """Print what the plug-in of that name offers, or the source, sink, codec, … of that name, with all options.

    Raises MissingPluginError, with the most similar name, if nothing has that name.
    """
    entries = installed()
    console = _console()
    by_name = {entry.name: entry for entry in entries}
    if name in by_name:
        entry = by_name[name]
        _show_head(console, entry)
        if entry.error is not None:
            console.print(Text(f"cannot be loaded: {entry.error}", style="red"))
        for kind, names in entry.offers().items():
            for offered in names:
                _show_thing(console, entry, kind, offered)
        return
    offers = [
        (entry, kind, offered) for entry in entries for kind, names in entry.offers().items() for offered in names
    ]
    found = [(entry, kind) for entry, kind, offered in offers if offered == name]
    if not found:
        known = {*by_name, *(offered for _, _, offered in offers)}
        raise MissingPluginError(
            f"no plug-in {name!r} is installed, and no plug-in offers it",
            plugin=name,
            hint=did_you_mean(name, known, known="installed names"),
        )
    for entry, kind in found:
        _show_head(console, entry)
        _show_thing(console, entry, kind, name)


def _show_head(console: Console, entry: PluginEntry) -> None:
    console.print(Text.assemble((entry.name, "bold"), f"  {entry.distribution} {entry.version}"))


def _show_thing(console: Console, entry: PluginEntry, kind: str, name: str) -> None:
    assert entry.registry is not None
    console.print()
    try:
        thing = entry.registry.find(kind, name)
        thing = resolve(thing, name=name) if kind == "function" else thing
    except Exception as error:  # a plug-in may raise anything; the rest of the page is still shown
        text = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
        console.print(Text.assemble((f"{kind} {name}", "bold cyan")))
        console.print(Text(f"  cannot be loaded: {text}", style="red"))
        return
    console.print(Text.assemble((f"{kind} {name}", "bold cyan"), f"   {usage(kind, name, thing)}"))
    text = summary(thing)
    if text:
        console.print(Text("  " + text.replace("\n", "\n  ")))
    settings = getattr(thing, "Settings", None)
    if isinstance(settings, type) and issubclass(settings, Settings):
        _show_options(console, settings)


def _show_options(console: Console, settings: type[Settings]) -> None:
    options = describe_options(settings)
    of_every_sink = set(SinkSettings.__struct_fields__) if issubclass(settings, SinkSettings) else set()
    own = [option for option in options if option.name not in of_every_sink]
    shared = [option for option in options if option.name in of_every_sink]
    if not options:
        console.print(Text("  no options", style="dim"))
    for title, some in ((None, own), ("options of every sink", shared)):
        if some:
            console.print()
            if title:
                console.print(Text(f"  {title}", style="dim"))
            console.print(_option_table(some))


def _option_table(options: Sequence[OptionHelp]) -> Table:
    table = _table("option", "type", "default", "what it is")
    for option in options:
        default = Text("required", style="yellow") if option.required else Text(option.default or "")
        table.add_row(Text(option.name, style="green"), Text(option.type), default, Text(option.description))
    return table


def usage(kind: str, name: str, thing: Any) -> str:
    """Return how a user writes it in a job; empty for kinds that have no such form."""
    if kind in ("source", "sink"):
        required = [option.name for option in describe_options(thing.Settings) if option.required]
        arguments = ", ".join([*required, "…"])
        return f".from_{name}({arguments})" if kind == "source" else f".to_{name}({arguments})"
    if kind == "operator":
        signature = inspect.signature(thing)
        parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "functions"]
        return f".{name}{signature.replace(parameters=parameters, return_annotation=signature.empty)}"
    if kind == "codec":
        return f'format="{name}"'
    if kind == "backend":
        return f'job.run(backend="{name}"), headrace run --backend {name}'
    if kind == "connector":
        return f"WITH ('connector' = '{name}', …) in SQL: {thing}"
    if kind == "function":
        return _function_usage(name, thing)
    return ""


def _function_usage(name: str, function: Any) -> str:
    if isinstance(function, AggregateFunction):
        return f"{name}(…) → {type_name(function.return_type)} (aggregate)"
    parameters = ", ".join(inspect.signature(function.function).parameters)
    if isinstance(function, TableFunction):
        return f"{name}({parameters}) → rows of {', '.join(function.schema)}"
    assert isinstance(function, ScalarFunction)
    return f"{name}({parameters}) → {type_name(function.return_type)}"


def summary(thing: Any) -> str:
    """Return the first paragraph of its docstring; empty if it has none."""
    documented = thing
    if isinstance(thing, ScalarFunction | TableFunction):
        documented = thing.function
    elif isinstance(thing, AggregateFunction):
        documented = thing.implementation
    text = inspect.getdoc(documented) if not isinstance(documented, str) else None
    return (text or "").partition("\n\n")[0]


def show_versions() -> None:
    """Print versions: of headrace, of Python, and of every distribution that belongs to headrace."""
    console = _console()
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    console.print(Text(f"headrace {headrace.__version__} ({system})"))
    names = {entry.dist.name: entry.dist.version for entry in metadata.entry_points(group=GROUP) if entry.dist}
    names |= {d.name: d.version for d in metadata.distributions() if d.name.startswith("headrace-")}
    for name in sorted(names):
        console.print(Text(f"  {name} {names[name]}"))


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    table.columns.clear()
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _console() -> Console:
    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    return Console(width=width, highlight=False, markup=False)
