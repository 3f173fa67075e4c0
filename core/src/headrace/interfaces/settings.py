"""Options of plug-ins: declared once as a typed class, from which validation, help and docs come."""

from __future__ import annotations

import functools
import logging
import os
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

import msgspec

from headrace.foundation.errors import OptionError, did_you_mean

logger = logging.getLogger(__name__)
_DURATION_UNITS = {
    "us": 1e-6, "microsecond": 1e-6, "ms": 1e-3, "millisecond": 1e-3, "s": 1, "sec": 1, "second": 1,
    "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400,
}  # fmt: skip
_SIZE_UNITS = {"b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}

#: Options with the address of a server. The same data may be reached under another address.
_ADDRESSES = frozenset({"servers", "name_servers", "hosts", "host", "url"})


@functools.cache
def _hints_of(settings: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the types of a class's options; they are texts until they are looked up."""
    return typing.get_type_hints(settings, include_extras=True)


@functools.cache
def _kinds_of(settings: type[msgspec.Struct]) -> Mapping[str, tuple[Any, ...]]:
    """Return the types that each option of a class may have."""
    return {name: _alternatives(annotation) for name, annotation in _hints_of(settings).items()}


@functools.cache
def _takes_secrets(settings: type[msgspec.Struct]) -> bool:
    """Return whether a class has a secret option. Then a user may give the password to another option by mistake."""
    return any(Secret in kinds for kinds in _kinds_of(settings).values())


@functools.cache
def _fields_of(settings: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a class. They are looked up for every verb of a job, and each look takes a millisecond."""
    return msgspec.structs.fields(settings)


def parse_duration(value: str | float | timedelta) -> timedelta:
    """Return a duration from ``"10 s"``, ``"1 min 30 s"``, ``"500ms"``, a number of seconds, or a timedelta.

    Raises ValueError when the text is none of these.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a duration such as '10 s'")
    total, at = 0.0, 0
    for found in re.finditer(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*", value):
        unit = found[2].lower()
        factor = _DURATION_UNITS.get(unit, _DURATION_UNITS.get(unit.removesuffix("s")))
        if found.start() != at or factor is None:
            break
        total, at = total + float(found[1]) * factor, found.end()
    if at != len(value) or not value.strip():
        raise ValueError(f"{value!r} is not a duration such as '10 s', '500 ms' or '1 h 30 min'")
    return timedelta(seconds=total)


def parse_size(value: str | int) -> int:
    """Return a number of bytes from ``"64 MiB"``, ``"1GB"`` or a number. Raises ValueError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", value) if isinstance(value, str) else None
    if found is None or (found[2] and found[2].lower() not in _SIZE_UNITS):
        raise ValueError(f"{value!r} is not a size such as '64 MiB'")
    return int(float(found[1]) * _SIZE_UNITS.get(found[2].lower(), 1))


#: A variable of the environment, or a place in a secret store.
_SECRET_PLACE = re.compile(r"\$\{(?:(?P<store>[A-Za-z]\w*):(?P<place>[^{}]+)|(?P<variable>\w+))\}")


class Secret:
    """A value that never shows in logs, ``repr`` or pickles of a job when it is given by its place.

    Places are ``"${VARIABLE}"`` of the environment, ``"${file:/run/secrets/db}"``, and ``"${NAME:PLACE}"`` of a secret
    store that a plug-in offers (``headrace_secret_stores``). The object keeps the place, and ``reveal`` looks it up. So
    every process reads its own environment and files.
    """

    __slots__ = ("_option", "_plugin", "_value")

    def __init__(self, value: str, *, plugin: str | None = None, option: str | None = None) -> None:
        self._value = value
        #: The plug-in and the option, for the error when the place has no secret.
        self._plugin, self._option = plugin, option

    def reveal(self) -> str:
        """Return the secret itself. Raises OptionError when there is none at the place, MissingPluginError for an
        unknown store.
        """
        found = _SECRET_PLACE.fullmatch(self._value)
        if found is None:
            return self._value
        if found["store"] is not None:
            from headrace.interfaces.registry import default_registry

            read = default_registry().find("secret store", found["store"])
            return str(read(found["place"]))
        if found["variable"] not in os.environ:
            raise OptionError(
                f"environment variable {found['variable']} is not set",
                plugin=self._plugin,
                option=self._option,
                hint="an option refers to it for a secret: set it for the process that runs the job",
            )
        return os.environ[found["variable"]]

    def __repr__(self) -> str:
        return "Secret('***')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(("Secret", self._value))


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all declared options: a frozen struct whose fields are the options.

    Declare an option as ``name: Annotated[type, option("what it does", ge=1)] = default``. Fields of type ``timedelta``
    also take texts such as ``"10 s"``, fields whose names end in ``_bytes`` take ``"64 MiB"``, and ``Secret`` fields
    take a text or a place such as ``"${VARIABLE}"``.
    """

    #: Options of a source or sink that identify its data, such as a topic or a path. Small pictures of a plan show
    #: them.
    in_pictures: ClassVar[tuple[str, ...]] = ()

    #: Options that other plug-ins of this kind have and this one does not, each with the reason. An error shows the
    #: reason.
    absent: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def of(cls, options: Mapping[str, Any], *, plugin: str | None = None) -> Self:
        """Validate options given by a user. Raises OptionError naming plug-in and option, with the nearest name."""
        fields = {f.encode_name: f for f in _fields_of(cls)}
        for name in options:
            if name in cls.absent:
                raise OptionError(f"there is no option {name!r} here: {cls.absent[name]}", plugin=plugin, option=name)
            if name not in fields:
                names = [field.encode_name for field in option_fields(cls)]
                hint = did_you_mean(
                    name, sorted(names, key=lambda each: not fields[each].required), known="options", in_order=True
                )
                raise OptionError(f"unknown option {name!r}", plugin=plugin, option=name, hint=hint)
        hints, kinds = _hints_of(cls), _kinds_of(cls)
        # A password that was given to another option by mistake must not show.
        guarded = _takes_secrets(cls)
        values = {}
        for name, field in fields.items():
            if name in options:
                _warn_of_references(name, options[name], Secret in kinds[field.name], plugin)
                values[field.name] = _convert(
                    options[name], hints[field.name], kinds[field.name], name, plugin, guarded=guarded
                )
            elif field.required:
                what = _description(hints[field.name])
                raise OptionError(
                    "required option is missing", plugin=plugin, option=name, hint=f"{name}: {what}" if what else None
                )
        try:
            made = cls(**values)
        except (TypeError, ValueError) as error:
            raise OptionError(str(error), plugin=plugin) from error
        made.validate()
        return made

    def check_types(self, *, plugin: str | None = None) -> None:
        """Check options that were given to the class itself, which takes any value. Called when a job is built.

        Raises OptionError for a value that ``of`` would have converted or refused.
        """
        hints, kinds = _hints_of(type(self)), _kinds_of(type(self))
        guarded = _takes_secrets(type(self))
        for field in _fields_of(type(self)):
            value = getattr(self, field.name)
            converted = _convert(
                value, hints[field.name], kinds[field.name], field.encode_name, plugin, guarded=guarded
            )
            hidden = isinstance(converted, Secret) or (guarded and not _shows_no_secret(value))
            if isinstance(converted, timedelta | Secret | int) and type(converted) is not type(value):
                raise OptionError(
                    f"{'the value' if hidden else repr(value)} is of type {type(value).__name__}, "
                    f"not {type(converted).__name__}",
                    plugin=plugin,
                    option=field.encode_name,
                    hint=f"make the options with {type(self).__name__}.of({{...}}), which converts them",
                )

    def validate(self) -> None:
        """Check what concerns several options together. Raises OptionError. Called once, after each is converted."""


def converted(value: Any, annotation: Any, *, plugin: str | None, option: str) -> Any:
    """Return the value of an option that no class of settings declares, as ``Settings.of`` converts it. Raises
    OptionError.
    """
    return _convert(value, annotation, _alternatives(annotation), option, plugin, guarded=False)


def option(description: str, **constraints: Any) -> msgspec.Meta:
    """Describe an option of a plug-in, for use in ``Annotated`` in a class of settings.

    The description is a phrase without a full stop; help, docs and errors show it. Constraints are those of
    ``msgspec.Meta``: ge, le, pattern, …; a value that breaks one raises OptionError when the job is built.
    """
    return msgspec.Meta(description=description, **constraints)


def _warn_of_references(name: str, value: Any, secret: bool, plugin: str | None) -> None:
    """Warn that ``${VARIABLE}`` is not replaced in an option that is not a secret, or in a part of a secret."""
    texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    for text in texts:
        found = _SECRET_PLACE.search(text) if isinstance(text, str) else None
        if found is not None and not (secret and found[0] == text):
            logger.warning(
                "option %s of %s holds %s, which is taken as it is: only a secret that is nothing else is looked up in the "
                "environment or a secret store, and headrace run replaces it in SQL files by --set",
                name, plugin or "a plug-in", found[0],
            )  # fmt: skip
        elif found is not None and found["variable"] is not None and found["variable"] not in os.environ:
            logger.warning(
                "option %s of %s names the environment variable %s, which is not set in this process",
                name, plugin or "a plug-in", found["variable"],
            )  # fmt: skip


def _convert(
    value: Any, annotation: Any, kinds: tuple[Any, ...], name: str, plugin: str | None, *, guarded: bool
) -> Any:
    """Return a value as the type that is declared for it; ``kinds`` are the alternatives of ``annotation``."""
    try:
        if value is None and type(None) in kinds:
            return None
        if timedelta in kinds and isinstance(value, str | int | float) and not isinstance(value, bool):
            return parse_duration(value)
        if name.endswith("_bytes") and int in kinds and isinstance(value, str):
            value = parse_size(value)
        if Secret in kinds and isinstance(value, str):
            return Secret(value, plugin=plugin, option=name)
        direct = tuple(kind for kind in kinds if isinstance(kind, type) and not _native(kind))
        if direct and isinstance(value, direct):
            return value
        if isinstance(value, os.PathLike) and str in kinds:
            value = os.fspath(value)
        # Texts become numbers and booleans, because options also come from SQL's WITH clauses and command lines.
        return msgspec.convert(value, annotation, strict=not isinstance(value, str), dec_hook=_accept_instance)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        choices = [
            str(each) for kind in kinds if typing.get_origin(kind) is typing.Literal for each in typing.get_args(kind)
        ]
        hint = did_you_mean(str(value), choices, known="values") if choices and Secret not in kinds else None
        if hint is None and timedelta in kinds:
            hint = "a duration such as '10 s', '500 ms' or '1 h 30 min'"
        if hint is None and isinstance(value, str) and any(typing.get_origin(kind) is tuple for kind in kinds):
            hint = "write a list, also of one value: [value]"
        if Secret in kinds or (guarded and not _shows_no_secret(value)):
            raise OptionError(
                f"unusable value (not shown, as it may be a secret): expected {_type_text(annotation)}",
                plugin=plugin,
                option=name,
                hint=hint,
            ) from None
        raise OptionError(f"unusable value {value!r}: {error}", plugin=plugin, option=name, hint=hint) from error


def _shows_no_secret(value: Any) -> bool:
    """Return whether a value is certainly not a misplaced password: it is not a text, or it is a number with a short
    word.
    """
    return not isinstance(value, str) or re.fullmatch(r"[+-]?[\d.,_ ]*[A-Za-z]{0,6}", value) is not None


def _accept_instance(kind: type, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    raise ValueError(f"expected {kind.__name__}")


def _native(kind: type) -> bool:
    return kind.__module__ == "builtins"


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type, without Annotated."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _alternatives(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, type(int | str)):
        return tuple(kind for part in typing.get_args(annotation) for kind in _alternatives(part))
    return (annotation,)


@dataclass(frozen=True, slots=True)
class OptionHelp:
    """One declared option as help and docs show it."""

    name: str
    type: str
    default: str | None
    description: str
    required: bool


def option_fields(settings: type[Settings]) -> Sequence[msgspec.structs.FieldInfo]:
    """Return the declared options in the order in which a user meets them, which is also that of positional arguments.

    A class's own options come before those that it inherits: ``to_file("alerts")`` means the file sink's ``path``, not
    the ``batch_size`` of every sink. An inherited option whose default is declared again keeps its place.
    """
    lineage = [kind for kind in settings.__mro__ if issubclass(kind, Settings)]

    def generation(field: msgspec.structs.FieldInfo) -> int:
        return max(at for at, kind in enumerate(lineage) if field.name in kind.__struct_fields__)

    return sorted(_fields_of(settings), key=generation)


def identifying_options(settings: Any) -> dict[str, Any]:
    """Return the required options as JSON values, without addresses of servers. They identify the data."""
    if not isinstance(settings, Settings):
        return {}
    names = [f.name for f in _fields_of(type(settings)) if f.required and f.name not in _ADDRESSES]
    found = {name: getattr(settings, name) for name in names}
    return {name: msgspec.to_builtins(value, enc_hook=repr) for name, value in found.items()}


def describe_options(settings: type[Settings]) -> Sequence[OptionHelp]:
    """Return the declared options of a settings class, in order, for ``headrace plugins NAME`` and the docs."""
    hints = _hints_of(settings)
    described = []
    for field in option_fields(settings):
        annotation = hints[field.name]
        default: str | None = None
        if not field.required:
            value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
            default = _default_text(field.encode_name, value)
        described.append(
            OptionHelp(field.encode_name, _type_text(annotation), default, _description(annotation), field.required)
        )
    return described


def format_duration(value: timedelta) -> str:
    """Return a duration as ``parse_duration`` reads it: ``"100 ms"``, ``"2 min"``, ``"1 h 30 min"``."""
    left = round(value / timedelta(microseconds=1))
    if left == 0:
        return "0 s"
    parts = []
    for unit in ("d", "h", "min", "s", "ms", "us"):
        size = round(_DURATION_UNITS[unit] * 10**6)
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts)


def _default_text(name: str, value: Any) -> str:
    """Return a default as a user would write it."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if name.endswith("_bytes") and isinstance(value, int):
        for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
            if value and value % size == 0:
                return f"{value // size} {unit}"
    return repr(value)


def _description(annotation: Any) -> str:
    for meta in getattr(annotation, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.description:
            return meta.description
    return ""


def _type_text(annotation: Any) -> str:
    if typing.get_origin(annotation) is typing.Annotated:
        return _type_text(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) is typing.Literal:
        return " | ".join(map(repr, typing.get_args(annotation)))
    alternatives = _alternatives(annotation)
    if len(alternatives) > 1:
        return " | ".join(_type_text(kind) for kind in alternatives)
    if annotation is timedelta:
        return "duration"
    if annotation is type(None):
        return "None"
    return annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(
        annotation
    ).replace("typing.", "").replace("collections.abc.", "")  # fmt: skip
