"""What the verb ``rules`` counts."""

from __future__ import annotations

from headrace.interfaces.metrics import Metric

RULE_HITS = Metric("rule.hits", "counter", "{row}", "Rows that a rule has matched.", ("node", "rule"))
