"""The texts of the Nexmark queries, as headrace and Flink are given them by benchmarks.nexmark.

They are the published ones, of a checkout of github.com/nexmark/nexmark; only the WITH options of the input, of one output and of
the side input are other ones. Other results go into the connector ``blackhole``, as published. q6 and q12 are left out: Flink does
not run q6, and what q12 gives depends on the clock.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

REPOSITORY = "https://github.com/nexmark/nexmark"
COMMIT = "6b3646c"
RESOURCES = "nexmark-flink/src/main/resources/queries"
QUERIES = tuple(f"q{number}" for number in [*range(6), *range(7, 12), *range(13, 23)])
#: The suite's queries with MATCH_RECOGNIZE; their files are called q0 to q3 too, in a folder of their own.
PATTERNS = tuple(f"cep_q{number}" for number in range(4))
COUNT_CHAR = "com.github.nexmark.flink.udf.CountChar"
SIDE_ROWS = 10_000


def checkout(directory: Path) -> Path:
    """Return a directory with the published texts; fetched when it is missing."""
    if not directory.exists():
        subprocess.run(["git", "clone", "-q", REPOSITORY, str(directory)], check=True)
        subprocess.run(["git", "-C", str(directory), "checkout", "-q", COMMIT], check=True)
    return directory


def make_side_input(path: Path) -> None:
    """Write the table that q13 looks up in."""
    path.write_text("".join(f"{number},{number}\n" for number in range(SIDE_ROWS)))


def text_of(name: str, texts: Path, *, events: str, side_input: str, output: str) -> str:
    """Return the script of a query: its tables, views and itself.

    ``events`` and ``side_input`` are WITH options, ``output`` the directory that q10 writes to.
    """
    folder = texts / (f"{RESOURCES}-cep" if name in PATTERNS else RESOURCES)
    tables = re.sub(r"(?s)\) WITH \(\s*'connector'.*", f") WITH ({events});", (folder / "ddl_gen.sql").read_text())
    views = (folder / "ddl_views.sql").read_text().replace("${NEXMARK_TABLE}", "datagen")
    query = (folder / f"{name.removeprefix('cep_')}.sql").read_text()
    query = re.sub(r"(?s)'connector\.type' = 'filesystem'.*?\);", lambda _: f"{side_input});", query)
    query = re.sub(r"file://\$\{NEXMARK_DIR\}[^']*", lambda _: output, query)
    return "\n".join(line for line in f"{tables}\n{views}\n{query}".splitlines() if not line.startswith("--"))
