"""Events from files into Elasticsearch, an index per day: each once, whatever is killed while it runs.

    headrace run examples/file_to_elasticsearch.py --set path='logs/*.ndjson' --set url=http://localhost:9200 --backend light

reads what is there; with ``--until never --checkpoint state/`` it follows the files until Ctrl-C. What the server refuses
(a source address that is none) and lines that cannot be read are kept in an index of their own, with the reason.
"""

from __future__ import annotations

import headrace as hr


def job(path: str, url: str = "http://localhost:9200", index: str = "events") -> hr.Job:
    """Return the job; ``headrace run`` sets the arguments from ``--set NAME=VALUE``."""
    events = hr.stream("examples", "file-to-elasticsearch").from_file(
        path,
        format="json",
        schema={"at": "timestamp", "host": "string", "source_ip": "string", "status": "int32", "message": "string"},
    )
    made: hr.Job = (
        events.where("status >= 400")
        .with_columns(host="lower(host)", severity="CASE WHEN status >= 500 THEN 'error' ELSE 'warning' END")
        .dead_letters(lambda bad: bad.to_elasticsearch(f"{index}-refused", url=url, create_index=True))
        .to_elasticsearch(
            f"{index}-%Y.%m.%d",
            url=url,
            index_time="at",
            create_index=True,
            mappings={"source_ip": "ip", "message": "text"},
        )
    )
    return made
