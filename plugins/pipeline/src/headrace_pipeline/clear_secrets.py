"""Unencrypted secrets in a pipeline file: the notices of ``headrace lint`` about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.foundation.secrecy import is_in_clear, is_secret_name, lets_in, masked

from headrace_pipeline.connectors import plugin_of, secret_options
from headrace_pipeline.document import Scalar, Section, Value, is_nothing
from headrace_pipeline.keys import SINK, SOURCE, Key


def clear_secrets(root: Section) -> list[str]:
    """Return a notice, with file and line, for each secret that the file holds itself. No notice shows the secret.

    Called by lint for a file that compiles. Looked at are options of sources and sinks that are declared as secrets, their properties and
    headers whose names say that they are, passwords in addresses, and defaults of variables whose names say that they are.
    """
    found: list[str] = []
    for key, kind, keys in (("sources", "source", SOURCE[1:]), ("sinks", "sink", SINK[1:])):
        for name, entry in root.required(key, of="a pipeline").section().entries.items():
            found += _of_end(entry.value.section(), kind, keys, f"{kind} {name!r}")
    bad = root.get("dead_letters")
    if bad is not None and not is_nothing(bad):
        found += _of_end(bad.section(), "sink", SINK[1:], "dead_letters")
    variables = root.get("variables")
    if variables is not None:
        for name, entry in variables.section().entries.items():
            if is_secret_name(name) and _is_clear(entry.value):
                found.append(_notice(entry.value, f"the default of the variable {name!r}", "leave the default out"))
    return found


def _of_end(section: Section, kind: str, keys: Sequence[Key], of: str) -> Iterator[str]:
    """Yield the notices for a source or a sink."""
    _, settings = plugin_of(section, kind, keys, of=of)
    secrets = secret_options(settings)
    for key, entry in section.entries.items():
        if key in secrets:
            if _is_clear(entry.value):
                yield _notice(entry.value, f"option {key!r} of {of}", _HINT)
        elif key not in ("schema", "metadata"):
            yield from _within(entry.value, f"option {key!r} of {of}")


def _within(value: Value, what: str) -> Iterator[str]:
    """Yield the notices for an option that is no secret itself: its properties, and addresses with passwords."""
    if isinstance(value, Section):
        for name, entry in value.entries.items():
            inner = f"{name!r} in {what}"
            if lets_in(name) and _is_clear(entry.value):
                yield _notice(entry.value, inner, _HINT)
            else:
                yield from _within(entry.value, inner)
        return
    for scalar in value.scalars():
        if isinstance(scalar.value, str) and masked(scalar.source) != scalar.source:
            yield _notice(scalar, f"the address in {what}", "give user and password by options of their own")


def _is_clear(value: Value) -> bool:
    """Return whether a value is the secret itself, not the place where it is."""
    if not isinstance(value, Scalar) or value.value is None:
        return False
    return is_in_clear(value.source)


_HINT = "write ${NAME} or ${file:/run/secrets/…}, which is read where the secret is used"


def _notice(value: Value, what: str, hint: str) -> str:
    return f"{value.file.name}, line {value.place.line + 1}: {what} holds a secret in clear; {hint}"
