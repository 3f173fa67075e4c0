"""A program as one SQL text of headrace, with the files that its tables read and write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.published.flink.functions import FUNCTIONS
from tests.published.flink.reading import Program

_METADATA = re.compile(r"\s+METADATA(\s+FROM\s+'[^']*')?(\s+VIRTUAL)?", re.IGNORECASE)


class NotSql(Exception):
    """Why a program has no SQL text that headrace could run: it is about Flink's Table API, or about a Java class."""


@dataclass(frozen=True)
class Texts:
    """The text of a program for one start of it."""

    text: str
    #: Records that each source has, by table.
    records: dict[str, int] = field(default_factory=dict)
    #: Directories of what sinks have written, by table.
    written: dict[str, Path] = field(default_factory=dict)


def functions_of(program: Program) -> dict[str, Any]:
    """Return the functions of a program, by name. Raises NotSql for one that is not known here."""
    made = {}
    for step in program.steps("FUNCTION"):
        name = re.split(r"[.$]", step["class"])[-1]
        if name not in FUNCTIONS:
            raise NotSql(f"it calls the Java class {name}")
        made[step["name"]] = FUNCTIONS[name]
    return made


def texts_of(program: Program, place: Path, *, before: bool, ends: bool, failing: str | None = None) -> Texts:
    """Return the text with the rows that come before the stop, or with all. ``failing``: a statement that runs at the end.

    ``ends``: the sources come to an end by themselves. Raises NotSql.
    """
    texts = Texts("")
    # Programs of before 2.3 leave the check of keys out, as Flink's own runs of them do; those that are about it have Flink's default.
    strict = "true" if program.name.startswith("SinkTest") else "false"
    lines = [f"SET 'table.exec.sink.require-on-conflict' = '{strict}';"]
    for step in program.setup:
        kind = step["kind"]
        if kind == "CONFIG":
            lines.append(f"SET '{step['key']}' = '{step['value']}';")
        elif kind.startswith("SOURCE"):
            options, count = _source(step, place, before=before, ends=ends)
            texts.records[step["name"]] = count
            lines.append(_table(step, options))
        elif kind.startswith("SINK"):
            texts.written[step["name"]] = Path(place, f"written-{step['name']}")
            lines.append(_table(step, {**_sink(step), "path": str(texts.written[step["name"]])}))
        elif kind == "SQL":
            lines.append(_ended(step["sql"]))
        elif kind != "FUNCTION":
            raise NotSql(f"it has a step {kind}")
    for step in program.run:
        if step["kind"] == "SQL":
            lines.append(_ended(step["sql"]))
        elif step["kind"] == "STATEMENT_SET":
            lines += ["BEGIN STATEMENT SET;", *map(_ended, step["statements"]), "END;"]
        elif step["kind"] != "FAILING_SQL":
            raise NotSql(f"it has a step {step['kind']}")
    if failing is not None:
        lines.append(_ended(failing))
    return Texts("\n".join(lines), texts.records, texts.written)


def is_looked_up(step: Mapping[str, Any]) -> bool:
    return bool(step["options"].get("disable-lookup") == "false")


def _source(step: Mapping[str, Any], place: Path, *, before: bool, ends: bool) -> tuple[dict[str, str], int]:
    first, then = step["before"] or [], step["after"] or []
    # A table that rows are looked up in is given as it is at that time.
    later = (then or first) if is_looked_up(step) else [*first, *then]
    rows = first if before else later
    path = Path(place, f"rows-{step['name']}.json")
    path.write_text(json.dumps(rows), encoding="utf-8")
    mode = step["options"].get("changelog-mode", "")
    changing = re.search("U|D", mode) or any(each["kind"] != "+I" for each in [*first, *then])
    keyed = any(re.search(r"(?i)primary\s+key", part) for part in step["schema"])
    kind = "none" if not changing else "upsert" if keyed and "UB" not in mode and mode else "all"
    options = {"connector": "program_rows", "path": str(path), "table": step["name"], "changes": kind}
    return {**options, **({"ends": "true"} if ends else {})}, len(rows)


def _sink(step: Mapping[str, Any]) -> dict[str, str]:
    options = step["options"]
    enforced = options.get("sink-changelog-mode-enforced")
    if options.get("sink-insert-only") == "true":
        takes = "append"
    elif enforced:
        takes = "changelog" if "UB" in enforced else "upsert" if "U" in enforced else "append"
    else:
        keyed = any(re.search(r"(?i)primary\s+key", part) for part in step["schema"])
        takes = "upsert" if keyed else "changelog"
    return {"connector": "program_changes", "takes": takes}


def _table(step: Mapping[str, Any], options: Mapping[str, str]) -> str:
    """Return the CREATE TABLE of a step. Columns of METADATA are columns like others: these tables have no header fields."""
    columns = ", ".join(_METADATA.sub("", part) for part in step["schema"])
    by = ", ".join(f"`{name}`" for name in step["partition"])
    partitioned = f" PARTITIONED BY ({by})" if by else ""
    given = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE `{step['name']}` ({columns}){partitioned} WITH ({given});"


def _ended(sql: str) -> str:
    return sql.rstrip().rstrip(";") + ";"


def metadata_of(step: Mapping[str, Any]) -> list[str]:
    """Return the columns of METADATA of a table, in the order in which Flink's rows have them: behind all others, by name."""
    found = [part.split()[0].strip("`") for part in step["schema"] if _METADATA.search(part)]
    return sorted(found)
