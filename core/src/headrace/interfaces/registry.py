"""Finds plug-ins by entry point and loads one only when something it offers is named."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from headrace.foundation.errors import JobError, MissingPluginError, PluginConflictError, did_you_mean
from headrace.interfaces import hookspecs

GROUP = "headrace"
#: The hook that offers each kind of thing, and how users write it.
HOOKS: Mapping[str, str] = {
    "source": "headrace_sources",
    "sink": "headrace_sinks",
    "operator": "headrace_operators",
    "function": "headrace_functions",
    "codec": "headrace_codecs",
    "decoder": "headrace_decoders",
    "accelerator": "headrace_accelerators",
    "state store": "headrace_state_stores",
    "local store": "headrace_local_stores",
    "backend": "headrace_backends",
    "language": "headrace_languages",
    "connector": "headrace_connectors",
    "secret store": "headrace_secret_stores",
    "metric": "headrace_metrics",
    "metrics exporter": "headrace_metrics_exporters",
}


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """One installed plug-in, for ``headrace plugins``."""

    name: str
    distribution: str
    version: str
    module: str


class Registry:
    """The installed plug-ins. A process has one, made on first use; tests make their own. Several threads may use it
    at the same time.
    """

    def __init__(self, entries: list[EntryPoint] | None = None) -> None:
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        found = entries if entries is not None else list(entry_points(group=GROUP))
        self._entries: dict[str, EntryPoint] = {}
        for entry in sorted(found, key=lambda e: e.name):
            other = self._entries.get(entry.name)
            if other is not None and _distribution(other) != _distribution(entry):
                raise PluginConflictError(
                    f"two installed distributions offer the plug-in {entry.name!r}: "
                    f"{_distribution(other)} and {_distribution(entry)}",
                    plugin=entry.name,
                    hint="uninstall one of them",
                )
            self._entries[entry.name] = entry
        self._loaded: set[str] = set()
        self._all_loaded = False
        #: Held while a plug-in is loaded. A plug-in may ask for another one while it is.
        self._lock = threading.RLock()
        self._offers: dict[str, dict[str, tuple[str, Any]]] = {kind: {} for kind in HOOKS}
        from headrace.interfaces import builtin_plugin

        self.register(builtin_plugin, "headrace")

    def register(self, plugin: object, name: str) -> None:
        """Add a plug-in that no entry point names (tests, notebooks). Raises PluginConflictError as for installed
        ones.
        """
        self._manager.register(plugin, name)
        self._manager.check_pending()
        for kind, hook_name in HOOKS.items():
            hook = getattr(self._manager.hook, hook_name)
            for implementation in hook.get_hookimpls():
                if implementation.plugin_name != name:
                    continue
                for offered, thing in implementation.function().items():
                    other = self._offers[kind].get(offered)
                    if other is not None and other[0] != name:
                        raise PluginConflictError(
                            f"plug-ins {self._describe(other[0])} and {self._describe(name)} both offer "
                            f"the {kind} {offered!r}",
                            plugin=name,
                            hint="uninstall one of the two distributions",
                        )
                    self._offers[kind][offered] = (name, thing)

    def find(self, kind: str, name: str) -> Any:
        """Return the object that a plug-in offers as ``kind`` under ``name``. Loads only the plug-ins that are needed
        to find it.

        Raises MissingPluginError saying what to install or the nearest name.
        """
        if not self._is_offered(kind, name):
            raise self._missing(kind, name)
        plugin, thing = self._offers[kind][name]
        if isinstance(thing, str) and ":" in thing:  # a connector's name refers to the name of another plug-in
            thing = _import(thing, plugin)
            self._offers[kind][name] = (plugin, thing)
        return thing

    def has(self, kind: str, name: str) -> bool:
        """Return whether ``find`` would return something."""
        if not self._is_offered(kind, name):
            return False
        try:
            self.find(kind, name)
        except MissingPluginError:
            return False
        return True

    def _is_offered(self, kind: str, name: str) -> bool:
        """Return whether a plug-in offers it; loads no more plug-ins than needed to know."""
        if name in self._offers[kind]:
            return True
        from headrace.interfaces.known_plugins import OFFERS, PLUGINS

        distribution = OFFERS.get(kind, {}).get(name)
        likely = [name, *(plugin for plugin, each in PLUGINS.items() if each == distribution)]
        for entry_name in (*(each for each in likely if each in self._entries), *self._entries):
            if name in self._offers[kind]:
                break
            self._load(entry_name)
        return name in self._offers[kind]

    def names(self, kind: str) -> list[str]:
        """Return all names offered of a kind. Loads every plug-in."""
        self.load_all()
        return sorted(self._offers[kind])

    def to_install(self, kind: str, name: str) -> str | None:
        """Return the package of headrace that offers a name and is not installed; None: there is none."""
        from headrace.interfaces.known_plugins import OFFERS

        distribution = OFFERS.get(kind, {}).get(name)
        return None if distribution in self._distributions else distribution

    @cached_property
    def _distributions(self) -> frozenset[str]:
        """The installed distributions, cached, because each access reads and parses the metadata of a distribution."""
        return frozenset(map(_distribution, self._entries.values()))

    def owner(self, kind: str, name: str) -> str:
        """Return the name of the plug-in that offers it."""
        self.find(kind, name)
        return self._offers[kind][name][0]

    def offers(self, plugin: str) -> Iterator[tuple[str, str, Any]]:
        """Yield (kind, name, thing) for everything that a plug-in offers."""
        for kind, offered in self._offers.items():
            for name, (owner, _) in sorted(offered.items()):
                if owner == plugin:
                    yield kind, name, self.find(kind, name)

    def installed(self) -> list[PluginInfo]:
        """Return the installed plug-ins without loading them."""
        infos = []
        for name, entry in self._entries.items():
            version = entry.dist.version if entry.dist else ""
            infos.append(PluginInfo(name, _distribution(entry), version, entry.value))
        return infos

    def load_all(self) -> pluggy.HookRelay:
        """Load every installed plug-in and return the hooks, to call optimizers and observers."""
        if not self._all_loaded:  # jobs ask for them several times
            for name in self._entries:
                self._load(name)
            self._all_loaded = True
        return self._manager.hook

    def _load(self, name: str) -> None:
        with self._lock:
            if name not in self._loaded:
                self._load_first(name)

    def _load_first(self, name: str) -> None:
        try:
            plugin = self._entries[name].load()
        except Exception as error:  # the import of a foreign module may raise anything
            raise JobError(
                f"plug-in {self._describe(name)} cannot be loaded: {type(error).__name__}: {error}",
                plugin=name,
                hint="repair or uninstall it; HEADRACE_PLUGINS=a,b names the only plug-ins to load",
            ) from error
        self._loaded.add(name)
        self.register(plugin, name)

    def _describe(self, plugin: str) -> str:
        entry = self._entries.get(plugin)
        return f"{plugin!r} ({_distribution(entry)})" if entry else repr(plugin)

    def _missing(self, kind: str, name: str) -> MissingPluginError:
        distribution = self.to_install(kind, name)
        if distribution is not None:
            return MissingPluginError(
                f"no {kind} {name!r} is installed", plugin=name, hint=f"pip install {distribution}"
            )
        offered = self._offers[kind]
        hint = did_you_mean(name, offered, known=f"installed {kind}s") if offered else f"no {kind} is installed"
        return MissingPluginError(f"no {kind} {name!r} is installed", plugin=name, hint=hint)


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value


def _import(path: str, plugin: str) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        from headrace.interfaces.known_plugins import PLUGINS

        raise MissingPluginError(
            f"plug-in {plugin!r} needs the module {error.name!r}, which is not installed",
            plugin=plugin,
            hint=f"pip install {PLUGINS.get(plugin, plugin)} with its extras",
        ) from error


@cache
def default_registry() -> Registry:
    """Return this process's registry. ``HEADRACE_PLUGINS=a,b`` limits it to these plug-ins, to find a faulty one."""
    allowed = os.environ.get("HEADRACE_PLUGINS")
    if allowed is None:
        return Registry()
    names = {name.strip() for name in allowed.split(",")}
    return Registry([entry for entry in entry_points(group=GROUP) if entry.name in names])
