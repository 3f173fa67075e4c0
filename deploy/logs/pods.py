"""The logs of all pods of a node into Elasticsearch, an index per day: the job of daemonset.yaml."""

from __future__ import annotations

import headrace as hr


def job(logs: str = "/var/log/pods", url: str = "http://elasticsearch:9200", index: str = "pods") -> hr.Job:
    """Return the job; ``headrace run`` sets the arguments from ``--set NAME=VALUE``."""
    lines = hr.stream("logs", "pods").from_file(f"{logs}/*/*/*.log*", format="cri", metadata={"path": "queue"})
    made: hr.Job = (
        lines.kubernetes_path(on="path")
        .dead_letters(lambda bad: bad.to_elasticsearch(f"{index}-refused", url=url, create_index=True))
        .to_elasticsearch(
            f"{index}-%Y.%m.%d",
            url=url,
            index_time="time",
            create_index=True,
            mappings={"message": "text"},
            retry_timeout="7 days",
        )
    )
    return made
