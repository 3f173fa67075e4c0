"""Golden cases: what once differed, shrunk, with the rows that are right.

A case is ``golden/NAME.json``: ``why`` (what was wrong), ``sql`` (its lines), ``tables`` (columns, rows, queues) and ``rows``, what
the query gives. Values are written as JSON has them; those that it has not as texts of their type.

    python -m tests.differential.golden NAME fuzz-findings/SEED.json "what was wrong"     # keeps a finding
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.differential.comparing import Row, row_of
from tests.differential.kinds import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTS,
    MAP,
    ROW,
    SMALLINT,
    STRING,
    TEXTS,
    TIME,
    TIMESTAMP,
    TINYINT,
    Kind,
)
from tests.differential.tables import Table, TableColumn

DIRECTORY = Path(__file__).parent / "golden"
_KINDS = {
    kind.headrace: kind
    for kind in (
        BOOLEAN,
        INT,
        BIGINT,
        DOUBLE,
        STRING,
        DATE,
        TIMESTAMP,
        BYTES,
        TINYINT,
        SMALLINT,
        FLOAT,
        TIME,
        INTS,
        TEXTS,
        ROW,
        MAP,
    )
}


def kind_named(text: str) -> Kind:
    """Return the type of that name."""
    if text.startswith("decimal"):
        digits, scale = text.removeprefix("decimal(").removesuffix(")").split(",")
        return Kind("decimal", int(digits), int(scale))
    return _KINDS[text]


def names() -> list[str]:
    """Return the names of all cases."""
    return sorted(path.stem for path in DIRECTORY.glob("*.json"))


def load(name: str) -> tuple[tuple[Table, ...], str, Counter[Row]]:
    """Return tables, text and rows of a case."""
    case = json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    tables = []
    for table, parts in case["tables"].items():
        columns = tuple(TableColumn(column, kind_named(kind)) for column, kind in parts["columns"].items())
        kinds = [column.kind for column in columns]
        rows = tuple(tuple(_read(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in parts["rows"])
        queues = tuple(parts.get("queues") or [0] * len(rows))
        tables.append(Table(table, columns, rows, queues, parts.get("carried", "frame"), parts.get("time", "")))
    kinds = [kind_named(kind) for kind in case["types"]]
    wanted = Counter(row_of(_read(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in case["rows"])
    return tuple(tables), "\n".join(case["sql"]), wanted


def case_text(
    tables: Sequence[Table], text: str, kinds: Sequence[Kind], rows: Sequence[Sequence[Any]], why: str = ""
) -> str:
    """Return a case as the text of its file; ``rows`` are those that are right, as Python values."""
    made = {
        "why": why,
        "sql": text.splitlines(),
        "tables": {table.name: _told(table) for table in tables if table.name in text},
        "types": [kind.headrace for kind in kinds],
        "rows": [[_written(value) for value in row] for row in rows],
    }
    return re.sub(r"\n {3,}(?=[^ ])|\n {2,}(?=[\]}])", " ", json.dumps(made, ensure_ascii=False, indent=1)) + "\n"


def _told(table: Table) -> dict[str, Any]:
    return {
        "columns": {column.name: column.kind.headrace for column in table.columns},
        "rows": [[_written(value) for value in row] for row in table.rows],
        **({"queues": list(table.queues)} if table.queue_count > 1 else {}),
        **({"carried": table.carried} if table.carried != "frame" else {}),
        **({"time": table.time} if table.time else {}),
    }


def _written(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | time) else str(value) if isinstance(value, Decimal) else value


def _read(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    readers: dict[str, Any] = {
        "bytes": b64decode, "timestamp": datetime.fromisoformat, "date": date.fromisoformat, "decimal": Decimal, "double": float,
        "float": float, "time": time.fromisoformat,
    }  # fmt: skip
    return readers.get(kind.name, lambda same: same)(value)


def main(name: str, finding: str, why: str) -> None:
    """Keep a finding of ``make fuzz`` under a name."""
    case = json.loads(Path(finding).read_text(encoding="utf-8"))
    text = json.dumps({**case, "why": why}, ensure_ascii=False, indent=1)
    (DIRECTORY / f"{name}.json").write_text(
        re.sub(r"\n {3,}(?=[^ ])|\n {2,}(?=[\]}])", " ", text) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:4])
