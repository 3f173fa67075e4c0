"""Writes the tables of presets into a page: ``python -m headrace_logpresets.page docs/log-presets.md``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from headrace.interfaces.settings import describe_options
from headrace_grok.values import type_text

from headrace_logpresets.formats import PresetSettings
from headrace_logpresets.ocsf import CLASSES
from headrace_logpresets.presets import Choices, Preset, presets

_BLOCK = "<!-- table of {name}, made by python -m headrace_logpresets.page -->\n{text}\n<!-- end of table -->"


def with_tables(page: str) -> str:
    """Return the text of a page with its tables replaced by current ones."""
    for name, lines in (("presets", _presets()), ("options", _options()), ("columns", _columns())):
        begin, end = _BLOCK.format(name=name, text="TEXT").split("TEXT")
        before, found, rest = page.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"the page has no marker for the table of {name}")
        page = "".join([before, begin, "\n".join(lines), end, after])
    return page


def _presets() -> list[str]:
    rows = [
        f"| `{each.name}` | {each.reads} | {'yes' if each.syslog else ''} | {', '.join(_options_of(each))} | "
        f"{', '.join(f'`{name}`' for name in CLASSES[each.name])} |"
        for each in presets().values()
    ]
    return [
        "| preset | reads | with a syslog header | options | classes of OCSF |",
        "|---|---|---|---|---|",
        *rows,
    ]


def _options_of(preset: Preset) -> list[str]:
    found = ["`header`", "`year`"] if preset.syslog else []
    return [*found, "`timezone`"] if preset.syslog or preset.local_times else found


def _options() -> list[str]:
    def code(text: str) -> str:
        return "`" + text.replace("|", r"\|") + "`"

    rows = [
        f"| `{found.name}` | {code(found.type)} | {code(found.default or 'required')} | {found.description} |"
        for found in describe_options(PresetSettings)
    ]
    return ["| option | type | default | meaning |", "|---|---|---|---|", *rows]


def _columns() -> list[str]:
    rows = []
    for preset in presets().values():
        plain = preset.columns(Choices(header=preset.syslog))
        ecs = preset.columns(Choices(ecs=True, header=preset.syslog))
        for number, ((name, kind), other) in enumerate(zip(plain.items(), ecs, strict=True)):
            first = f"`{preset.name}`" if number == 0 else ""
            shown = "JSON" if name in plain.json_columns else _type(kind)
            rows.append(f"| {first} | `{name}` | {shown} | `{other}` |")
    return ['| preset | column | type | with `fields="ecs"` |', "|---|---|---|---|", *rows]


def _type(kind: pl.DataType) -> str:
    return f"array of {type_text(kind.inner)}s" if isinstance(kind, pl.List) else type_text(kind)  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; with ``--check`` only say whether it is up to date."""
    parser = argparse.ArgumentParser(prog="python -m headrace_logpresets.page", description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--check", action="store_true", help="do not write; exit with 1 if the page is out of date")
    options = parser.parse_args(arguments)
    before = options.path.read_text(encoding="utf-8")
    after = with_tables(before)
    if options.check:
        return 0 if before == after else 1
    options.path.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
