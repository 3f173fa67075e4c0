"""How correlations are read: what they become, and that each misuse is an error with its file and place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
import pytest
import yaml
from headrace.foundation.errors import OptionError, PlanError
from headrace_detection.correlations import Bounds, Correlation, load_correlations
from headrace_rules.model import RulesError
from headrace_rules.sigma_fields import NO_OPTIONS, SigmaOptions

FAILED = {"title": "Failed login", "id": "53ba33fd", "name": "failed", "level": "low", "tags": ["attack.t1110"],
          "detection": {"selection": {"EventID": 4625}, "condition": "selection"}}  # fmt: skip
WORKED = {"title": "Login", "name": "worked", "detection": {"selection": {"EventID": 4624}, "condition": "selection"}}


def document(**section: Any) -> dict[str, Any]:
    whole = {
        "type": "event_count",
        "rules": ["failed"],
        "group-by": ["User"],
        "timespan": "10m",
        "condition": {"gte": 10},
    }
    whole |= section
    return {"title": "Many", "id": "many", "correlation": {name: one for name, one in whole.items() if one is not None}}


def loaded(*documents: dict[str, Any], sigma: SigmaOptions = NO_OPTIONS) -> list[Correlation]:
    return list(load_correlations([FAILED, WORKED, *documents], None, sigma))


def test_a_correlation_names_rules_by_id_name_and_title() -> None:
    for name in ("53ba33fd", "failed", "Failed login"):
        (one,) = loaded(document(rules=[name]))
        assert one.rules == ("53ba33fd",)
        assert (one.id, one.kind, one.span_us, one.bounds) == ("many", "event_count", 600_000_000, Bounds(low=10))
    (one,) = loaded(document(rules=["worked"]))
    assert one.rules == ("worked",)


@pytest.mark.parametrize(
    ("condition", "bounds"),
    [
        ({"gt": 100, "lte": 200}, Bounds(101, 200)),
        ({"gte": 3, "lt": 7}, Bounds(3, 6)),
        ({"eq": 5}, Bounds(5, 5)),
        ({"neq": 5, "gte": 2}, Bounds(low=2, unequal=(5,))),
    ],
)
def test_conditions(condition: dict[str, int], bounds: Bounds) -> None:
    assert loaded(document(condition=condition))[0].bounds == bounds


def test_aliases_and_fields_give_columns_by_rule() -> None:
    given = document(
        type="value_count",
        rules=["failed", "worked"],
        condition={"field": "peer", "gte": 2},
        aliases={"peer": {"failed": "src", "worked": "dst"}},
    )
    (one,) = loaded(given, sigma=SigmaOptions.of({"fields": {"User": "user.name", "src": "source_ip"}}))
    assert one.keys == (("user.name",),) * 2
    assert one.values == (("source_ip",), ("dst",))


def test_generate_gives_the_rules_behind_the_correlations() -> None:
    both = loaded(document(generate=True), {**document(), "id": "quiet"})
    assert [(one.id, one.kind) for one in both] == [
        ("many", "event_count"),
        ("quiet", "event_count"),
        ("53ba33fd", "rule"),
    ]
    assert (both[2].severity, both[2].labels) == ("low", ("attack.t1110",))


def test_the_version_changes_with_what_decides_about_results() -> None:
    one = loaded(document())[0].version
    assert one == loaded(document(condition={"gte": 11}))[0].version, "kept events do not depend on the condition"
    others = [document(timespan="11m"), document(**{"group-by": ["Host"]}), document(rules=["worked"])]
    assert len({one, *(loaded(other)[0].version for other in others)}) == 4


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"rules": ["faild"]}, "no rule with the id or name 'faild'; did you mean 'failed'"),
        ({"rules": []}, "rules is missing or empty"),
        ({"rules": ["many"]}, "correlations of correlations are not supported"),
        ({"group-by": None}, "group-by is missing or empty"),
        ({"type": "value_avg"}, "type: 'value_avg' is not supported"),
        ({"type": None}, "type: None is not supported"),
        ({"timespan": "10 minutes"}, "timespan: '10 minutes' is not a time"),
        ({"timespan": None}, "timespan: None is not a time"),
        ({"condition": None}, "condition: None is not a mapping"),
        ({"condition": {"more": 3}}, "unknown entry 'more'"),
        ({"condition": {}}, "no comparison"),
        ({"condition": {"gte": "ten"}}, "'ten' is not a number"),
        ({"condition": {"gt": 5, "lt": 6}}, "never true"),
        ({"condition": {"lt": 1}}, "never true"),
        ({"condition": {"eq": 5, "neq": 5}}, "never true"),
        ({"condition": {"lte": 1, "neq": 1}}, "never true"),
        ({"condition": {"field": "User", "gte": 3}}, "condition of event_count: unknown entry 'field'"),
        ({"type": "value_count"}, "field is missing or empty"),
        ({"type": "temporal_ordered", "rules": ["failed", "worked"], "condition": {"gte": 1}}, "only gte: 2"),
        ({"aliases": {"a": {"failed": "x", "worked": "y"}}}, "names the rule 'worked', which is not among the rules"),
        ({"aliases": {"a": {}}}, "has no field for the rule '53ba33fd'"),
        ({"aliases": ["a"]}, "aliases must be a mapping"),
        ({"generate": "yes"}, "neither true nor false"),
        ({"window": "1h"}, "unknown entry 'window' of correlation"),
    ],
)
def test_misuse_is_an_error_with_file_and_place(section: dict[str, Any], reason: str, tmp_path: Path) -> None:
    place = tmp_path / "many.yml"
    place.write_text(yaml.safe_dump_all([FAILED, WORKED, document(**section)]))
    with pytest.raises(RulesError) as raised:
        load_correlations(place, None, NO_OPTIONS)
    assert f"rule 'many' ({place}, rule 3): " in str(raised.value)
    assert reason in str(raised.value)


def test_other_misuse() -> None:
    with pytest.raises(OptionError, match="no correlations"):
        loaded()
    with pytest.raises(RulesError, match="already used"):
        loaded(document(), document())
    with pytest.raises(RulesError, match="unknown level 'great'"):
        loaded({**document(), "level": "great"})
    with pytest.raises(RulesError, match="is mapped to several columns"):
        loaded(document(), sigma=SigmaOptions.of({"fields": {"User": ["a", "b"]}}))


def test_rules_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump_all([FAILED, WORKED]))
    (tmp_path / "plain.sql").write_text("-- id: root\nuser = 'root';\n")
    (tmp_path / "correlation.yml").write_text(yaml.safe_dump(document(rules=["failed", "root"])))
    rules = [tmp_path / "rules.yml", tmp_path / "plain.sql"]
    (one,) = load_correlations(tmp_path / "correlation.yml", rules, NO_OPTIONS)
    assert one.rules == ("53ba33fd", "root")
    (one,) = load_correlations([document(rules=["shadow"])], {"shadow": "user = 'x'"}, NO_OPTIONS)
    assert one.rules == ("shadow",)


def stream(**columns: str) -> hr.Stream:
    from headrace.testing import MemorySource

    schema = {"User": "string", "EventID": "int64", "ts": "timestamp", **columns}
    return hr.stream("test", "correlate").from_(MemorySource(), format="json", schema=schema)


def test_a_correlation_is_checked_against_the_columns() -> None:
    rules = {"failed": "EventID = 4625"}
    tagged = stream().rules(rules, output="tag")
    with pytest.raises(RulesError, match=r"correlation 1.*no column 'Usr' of texts or numbers; did you mean 'User'"):
        tagged.correlate([document(**{"group-by": ["Usr"]})], rules=rules, on="ts")
    with pytest.raises(PlanError, match="rules"):
        stream().correlate([document()], rules=rules, on="ts")
    with pytest.raises(PlanError, match=r"unknown column 'time'|not a column of times"):
        tagged.correlate([document()], rules=rules, on="time")
    with pytest.raises(PlanError, match="not a column of times"):
        tagged.watermark("ts").correlate([document()], rules=rules, on="User")
    with pytest.raises(OptionError, match="unknown output 'last'"):
        tagged.correlate([document()], rules=rules, on="ts", output="last")
    with pytest.raises(OptionError, match=r"correlate.*unexpected keyword"):
        tagged.correlate([document()], rules=rules, on="ts", outputs="all")
    with pytest.raises(PlanError, match="already"):
        stream(correlation_count="int64").rules(rules).correlate([document()], rules=rules, on="ts")
