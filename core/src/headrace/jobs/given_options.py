"""Divides the options of ``from_<name>`` and ``to_<name>`` among the classes that declare them, and refuses unknown
ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces.settings import Settings, option_fields
from headrace.interfaces.table_options import TableOptions

#: Arguments of ``from_<name>`` beside the options of source and format. If a source declares such an option itself, it
#: gets it.
OF_FROM = ("start", "key", "repeats", "normalize", "state_ttl")
_OF_STREAMS = ("format", "schema", "metadata", "name", *OF_FROM)


def field_names(settings: type[Settings]) -> list[str]:
    """Return the names of the options that a class declares, in the order of positional arguments."""
    return [field.encode_name for field in option_fields(settings)]


def split_options(
    settings: type[Settings], plugin: str, arguments: Sequence[Any], options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options that the settings declare (positional ones by the order of fields), and the others."""
    names = field_names(settings)
    if len(arguments) > len(names):
        raise OptionError(f"takes at most {len(names)} positional arguments", plugin=plugin)
    own = dict(zip(names, arguments, strict=False))
    others = {}
    for name, value in options.items():
        if name in own:
            raise OptionError("given twice", plugin=plugin, option=name)
        if name in names:
            own[name] = value
        else:
            others[name] = value
    return own, others


def unknown_option(
    plugin: str, name: str, *settings: type[Settings], spellings: Mapping[str, TableOptions], of_streams: bool = True
) -> OptionError:
    """Return the error for an option that nobody declares. ``spellings``: how SQL texts write the plug-in's options."""
    fields = {field.encode_name: field for declared in settings for field in option_fields(declared)}
    known = [
        *(each for each, field in fields.items() if field.required),
        *(_OF_STREAMS if of_streams else ("name",)),
        *(each for each, field in fields.items() if not field.required),
    ]
    meant = _spelled(name, spellings)
    hint = f"it is called {meant!r}" if meant else did_you_mean(name, known, known="options", in_order=True)
    return OptionError(f"unknown option {name!r}", plugin=plugin, option=name, hint=hint)


def _spelled(name: str, spellings: Mapping[str, TableOptions]) -> str | None:
    """Return the option that SQL texts spell like this, perhaps after a prefix: ``bootstrap_servers`` is
    ``properties.bootstrap.servers``.
    """
    for declared in spellings.values():
        for spelling, meant in declared.options.items():
            words = spelling.replace(".", "_").replace("-", "_")
            if isinstance(meant, str) and (words == name or words.endswith(f"_{name}")):
                return meant
    return None
