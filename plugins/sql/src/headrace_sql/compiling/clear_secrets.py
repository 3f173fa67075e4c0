"""Secrets that stand in a SQL text in clear: what ``headrace lint`` says of them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.foundation.errors import ExpressionError, MissingPluginError
from headrace.foundation.secrecy import is_in_clear, is_secret_name, lets_in, masked
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import describe_options
from headrace_columnar.dialect import span
from sqlglot import exp

from headrace_sql.binding.connectors import connector_of
from headrace_sql.binding.tables import read_table
from headrace_sql.reading import nodes
from headrace_sql.reading.parsing import parse
from headrace_sql.reading.rendering import text_of_literal
from headrace_sql.reading.table_hints import OPTIONS


def clear_secrets(text: str, written: str, dialect: str) -> list[str]:
    """Return a notice, with the line, for each secret that a text holds itself. No notice shows the secret.

    Called by lint for a text that compiles. ``written`` is the text as the file has it, before variables were replaced: what
    ``--set`` gives is not in the file. Looked at are the options of tables and catalogs, and of hints behind tables: those
    that their connector declares as secrets, those whose names say that they are, and passwords in addresses.
    """
    statements, _ = parse(text, dialect)
    found: list[str] = []
    for statement in statements:
        for name, key, value, place, declared in _options(statement, text):
            if text_of_literal(value) not in written:
                continue
            what = f"line {text.count(chr(10), 0, place) + 1}: option {key!r} of {name}"
            if key in declared or lets_in(key):
                if is_in_clear(value):
                    found.append(
                        f"{what} holds a secret in clear; write '${{NAME}}' or '${{file:/run/secrets/…}}', which is read "
                        "where the secret is used"
                    )
            elif not is_secret_name(key) and masked(value) != value:
                found.append(
                    f"{what} holds an address with a password in clear; give user and password by options of their own"
                )
    return found


def _options(statement: exp.Expr, text: str) -> Iterator[tuple[str, str, str, int, frozenset[str]]]:
    """Yield what has an option, the option, its value, its place in the text, and the options that are declared as secrets there."""
    properties = statement.args.get("properties")
    options = properties.expressions if isinstance(properties, exp.Properties) else statement.args.get("options") or ()
    if options and isinstance(statement, exp.Create | nodes.CreatePlace):
        declared = _declared_secrets(statement, text)
        name = statement.find(exp.Table)
        of = repr(name.name) if name is not None else "a definition"
        for each in options:
            yield of, each.this.name, each.args["value"].name, span(text, each.this)[0], declared
    for table in statement.find_all(exp.Table):
        for key, value, place in table.meta.get(OPTIONS, ()):
            yield f"the hint behind {table.name!r}", key, value, place, frozenset()


def _declared_secrets(statement: exp.Expr, text: str) -> frozenset[str]:
    """Return the names, as texts write them, of the options that a table's connector declares as secrets."""
    if not isinstance(statement, exp.Create) or not isinstance(statement.this, exp.Schema):
        return frozenset()
    found: set[str] = set()
    for kind in ("source", "sink"):
        try:
            connector = connector_of(read_table(statement, text), kind)
        except (ExpressionError, MissingPluginError):
            continue  # of a table that the text defines and does not use
        if not default_registry().has(kind, connector.plugin):
            continue
        settings = default_registry().find(kind, connector.plugin).Settings
        secrets = {each.name for each in describe_options(settings) if "Secret" in each.type}
        offered = connector.offered(kind)
        targets = {} if offered is None else offered.options
        found |= {key for key, target in targets.items() if isinstance(target, str) and target in secrets}
        found |= {each for name in secrets for each in (name, name.replace("_", "-"))}
    return frozenset(found)
