"""A job that takes records over HTTP and stores them in SQLite: ``python http_job.py PORT listen|end``, in its directory."""

from __future__ import annotations

import sys

import headrace as hr


def main(port: str, how: str) -> None:
    job = (
        hr.stream("edge", "records")
        .from_http(port=int(port), buffer="buffer", format="json", schema={"n": "int64", "pad": "string"})
        .select("n")
        .to_sqlite("rows", "rows.db", create_table=True, flush_interval="20 ms")
    )
    if how == "listen":
        job.start("light", checkpoint="state", checkpoint_interval="50 ms").wait()
    else:
        job.run("light", checkpoint="state", show_progress=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
