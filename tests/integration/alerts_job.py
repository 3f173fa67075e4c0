"""The job that test_alerts.py runs and kills: Sigma rules and correlations over logins, and their alerts to people and to a store.

    python -m tests.integration.alerts_job '<json of build()'s arguments, "backend", and "run": options of the run>'

It says ``started``, and stops gracefully on SIGTERM.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import headrace as hr

from tests.job_programs import log_warnings, run_until_stopped

LOGINS = {"n": "int64", "ts": "timestamp", "Host": "string", "User": "string", "EventID": "int64"}
RULES = """
title: Failed login
name: failed_login
level: low
logsource: {product: windows, service: security}
detection: {selection: {EventID: 4625}, condition: selection}
---
title: Login
name: login
level: informational
logsource: {product: windows, service: security}
detection: {selection: {EventID: 4624}, condition: selection}
---
title: Many failed logins
id: many
level: medium
correlation: {type: event_count, rules: [failed_login], group-by: [Host], timespan: 30s, condition: {gte: 5}}
---
title: Passwords of many users
id: sprayed
level: critical
tags: [attack.t1110.003]
correlation: {type: value_count, rules: [failed_login], group-by: [Host], timespan: 30s, condition: {field: User, gte: 4}}
---
title: Both kinds within a time
id: both
level: low
correlation: {type: temporal, rules: [failed_login, login], group-by: [User, Host], timespan: 20s}
---
title: Guessed password
id: guessed
level: high
correlation: {type: temporal_ordered, rules: [failed_login, login], group-by: [User], timespan: 20s}
"""
OWNERS = "Host,owner,zone\nh0,ann@example.org,office\nh1,bob@example.org,plant\nh2,ann@example.org,plant\n"
#: The names that the Elastic Common Schema has for what an alert says.
ECS = (
    'ts AS "@timestamp"', "'alert' AS \"event.kind\"", 'rule_id AS "rule.id"', 'rule_severity AS "log.level"', "rule_labels AS tags",
    'Host AS "host.name"', 'User AS "user.name"', 'owner AS "host.owner"', 'zone AS "network.zone"', 'correlation_start AS "event.start"',
    "correlation_key", "correlation_count", "n",
)  # fmt: skip


def lay_out(place: Path) -> None:
    """Write what the job reads beside the logins."""
    (place / "rules.yml").write_text(RULES)
    (place / "owners.csv").write_text(OWNERS)
    (place / "in").mkdir()


def build(place: str, webhook: str, smtp_port: int, elasticsearch: str, index: str, idle_timeout: str | None) -> hr.Job:
    """Return the job. Its numbers are small, so that everything happens within seconds."""
    rules, begin = f"{place}/rules.yml", hr.stream("integration", "alerts")
    columns = {"Host": "string", "owner": "string", "zone": "string"}
    owners = begin.from_file(f"{place}/owners.csv", format="csv", schema=columns, header=True, name="owners")
    logins = begin.from_file(f"{place}/in/*.ndjson", format="json", schema=LOGINS, name="logins")
    found = (
        logins.watermark("ts", delay="2 s", idle_timeout="500 ms")
        .rules(rules, sigma={"logsource": {"product": "windows", "service": "security"}})
        .correlate(rules, on="ts", idle_timeout=idle_timeout)
    )
    once = found.key_by("rule_id", "correlation_key", "correlation_start").deduplicate()
    alerts = once.lookup_join(owners, on="Host", how="left")
    throttled = alerts.key_by("rule_id", "Host").throttle("2 s")
    grouped = (
        alerts.key_by("owner")
        .window(hr.tumbling("2 s"))
        .agg(alerts="count(*)", rules="collect_set(rule_id)", least="min(n)")
        .where("owner IS NOT NULL")
    )
    made: hr.Job = hr.job(
        throttled.to_http(webhook, row_id="id", request_rows=3, flush_interval="200 ms", retry_after_max="1 s"),
        grouped.to_mail(
            host="127.0.0.1", port=smtp_port, security="none", sender="alerts@example.org", to_column="owner",
            subject="{alerts} alerts", line="{window_start} {owner} {alerts} {rules} {least}", flush_interval="200 ms",
        ),
        alerts.select(*ECS).to_elasticsearch(
            index, url=elasticsearch, create_index=True, batch_size=20, flush_interval="200 ms"
        ),
    )  # fmt: skip
    return made


def main(given: dict[str, Any]) -> None:
    log_warnings()
    backend, run = given.pop("backend"), given.pop("run")
    run_until_stopped(build(**given), backend, run)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
