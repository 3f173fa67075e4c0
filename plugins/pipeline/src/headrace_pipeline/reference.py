"""The tables of keys in docs/pipelines.md: ``python -m headrace_pipeline.reference docs/pipelines.md`` updates them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace_pipeline.keys import CASE, LETTER, PIPELINE, SINK, SOURCE, STEP, Key
from headrace_pipeline.steps import VERBS


def tables() -> Mapping[str, list[str]]:
    """Return the rows of each table by what its first column is called."""
    found = {
        "key of a file": _rows(PIPELINE),
        "key of a source": _rows(SOURCE),
        "key of a sink": _rows(SINK),
        "key of a step": _rows(STEP),
        "verb": [f"| `{name}` | {verb.form} | {verb.meaning} |" for name, verb in VERBS.items()],
    }
    found |= {"key of a case": _rows(CASE), "key of a dead letter": _rows(LETTER)}
    for name, verb in VERBS.items():
        if verb.keys:
            found[f"key of `{name}`"] = _rows(verb.keys)
    return found


def with_tables(page: str) -> str:
    """Return a page with the rows of all its tables of keys as they are in the code. Raises ValueError if a table is not there."""
    for title, rows in tables().items():
        head = f"| {title} | value | meaning |\n|---|---|---|\n"
        if page.count(head) != 1:
            raise ValueError(f"the page has no table {title!r}")
        before, _, rest = page.partition(head)
        rest = re.sub(r"\A(?:\|.*\n)*", "", rest)
        page = before + head + "".join(f"{row}\n" for row in rows) + rest
    return page


def _rows(keys: Iterable[Key]) -> list[str]:
    return [f"| `{key.name}` | {key.form} | {key.meaning}{'; required' if key.required else ''} |" for key in keys]


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
