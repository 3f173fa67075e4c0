"""Failed logins of a file to a webhook, each request with the rows of one batch.

    export WEBHOOK_TOKEN=...
    headrace run examples/failures_to_webhook.py --set path=logins.ndjson --set url=https://hooks.example.org/logins

The receiver gets ``{"source": "headrace", "failures": [...]}`` with a bearer token, and a header ``Idempotency-Key``: a request
that comes again after a crash has the same key.
"""

from __future__ import annotations

import headrace as hr


def job(path: str, url: str) -> hr.Job:
    """Return the job; ``headrace run`` sets the arguments from ``--set NAME=VALUE``."""
    logins = hr.stream("examples", "failures").from_file(
        path, format="json", schema={"at": "timestamp", "user": "string", "ip": "string", "outcome": "string"}
    )
    made: hr.Job = (
        logins.where("outcome = 'failure'")
        .select("at", "user", "ip")
        .to_http(
            url,
            template='{"source": "headrace", "failures": $rows}',
            row_id="id",
            token="${WEBHOOK_TOKEN}",
        )
    )
    return made
