"""How often each rule of a job has matched, from the figures of the job."""

from __future__ import annotations

from collections import defaultdict

from headrace.interfaces.metrics import Snapshot


def hits_of_rules(snapshot: Snapshot) -> dict[str, float]:
    """Return hits by the id of the rule, of all verbs together. Rules without a hit are left out."""
    hits: dict[str, float] = defaultdict(float)
    for family in snapshot.families:
        if family.metric.name == "rule.hits":
            for series in family.series:
                hits[series.labels[-1]] += series.value
    return dict(hits)
