"""Plans as text and as Mermaid: whole pictures are compared, since it is pictures that people read."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from textwrap import dedent
from typing import Annotated, Any, ClassVar

import headrace as hr
import msgspec
import pytest
from headrace.flow.dead_letters import dead_letter_schema
from headrace.foundation.errors import PlanError
from headrace.plan.explain import (
    changed_options,
    describe_nodes,
    describe_stages,
    guarantee_of,
    plan_as_mermaid,
    plan_as_text,
)
from headrace.plan.graph import DeadLettersNode, Input, Node, OperatorNode, Plan, SinkNode, SourceNode, UnionNode

SCHEMA = hr.Schema.of({"host": "string", "user": "string", "cmdline": "string", "ts": "timestamp"})


class LogSettings(hr.Settings, frozen=True, kw_only=True):
    in_pictures: ClassVar[tuple[str, ...]] = ("path",)

    path: Annotated[str, hr.option("where")]
    password: Annotated[hr.Secret | None, hr.option("never shown")] = None
    interval: Annotated[timedelta, hr.option("how often")] = timedelta(seconds=1)
    tags: Annotated[list[str], hr.option("a default made anew")] = msgspec.field(default_factory=list)


class LogSource(hr.Source):
    Settings = LogSettings

    def __init__(self, **options: Any) -> None:
        self.settings = LogSettings.of(options)

    def queues(self) -> Collection[hr.Queue]:
        raise AssertionError("explaining a plan must not touch the outside world")

    def open(self, queue: hr.Queue, start: Any) -> hr.Reader:
        raise AssertionError("explaining a plan must not touch the outside world")


class Table(hr.Sink):
    def batch_insert(self, batch: hr.SinkBatch) -> None:
        raise AssertionError("explaining a plan must not touch the outside world")

    prepare = open = batch_insert  # type: ignore[assignment]


class KeyedTable(Table, hr.IdempotentSink):
    pass


class ExactTable(Table, hr.TransactionalSink):
    def last_offset(self, queue: hr.Queue) -> hr.Position | None:
        raise AssertionError("explaining a plan must not touch the outside world")


class Step(hr.OperatorSpec):
    """An operator that needs all its input, or what it is told, and gives what it is told."""

    def __init__(
        self,
        name: str,
        text: str = "",
        gives: hr.Schema | str | None = "same",
        needs: Collection[str] | None = None,
        outputs: Collection[str] = ("",),
    ) -> None:
        self.name = name  # type: ignore[misc]
        self.text = text
        self.gives = gives
        self.needs = needs
        self.outputs = tuple(outputs)

    def output_schema(self, schema: hr.Schema | None, output: str = "") -> hr.Schema | None:
        return schema if isinstance(self.gives, str) else self.gives

    def required_columns(self, wanted: Collection[str] | None, schema: hr.Schema) -> Collection[str] | None:
        if self.needs is None:
            return None
        return {*self.needs, *(wanted if isinstance(self.gives, str) and wanted is not None else ())}

    def open(self, schema: hr.Schema | None) -> hr.Operator:
        raise AssertionError("explaining a plan must not run it")

    def describe(self) -> str:
        return self.text


def source(label: str = "file", **options: Any) -> SourceNode:
    given = {"path": "events/*.ndjson", **options}
    return SourceNode(label=label, schema=SCHEMA, source=LogSource(**given), format="json", body_schema=SCHEMA)


def step(before: Node, spec: Step, output: str = "") -> OperatorNode:
    edge = Input(before, output)
    return OperatorNode(label=spec.name, schema=spec.output_schema(before.schema), spec=spec, input=edge)


def sink(before: Node, label: str = "to_file", output: str = "", kind: type[hr.Sink] = ExactTable) -> SinkNode:
    return SinkNode(label=label, schema=before.schema, sink=kind(), input=Input(before, output))


def straight_plan(*, dead_letters: bool = True) -> Plan:
    """The job of the README: where, select, map, and dead letters on their own way."""
    chosen = hr.Schema.of({"host": "string", "ts": "timestamp", "cmd": "string"})
    where = step(source(), Step("where", "lower(cmdline) LIKE '%curl%' AND user <> 'root'", needs=["cmdline", "user"]))
    select = step(where, Step("select", "host, ts, lower(cmdline) AS cmd", chosen, needs=["host", "ts", "cmdline"]))
    sinks = [sink(step(select, Step("map", "<lambda> at job.py:7", None)))]
    if dead_letters:
        bad = DeadLettersNode(label="dead_letters", schema=dead_letter_schema())
        sinks.append(sink(bad, "dead_letters_file"))
    return Plan("security", "suspicious-commands", sinks)


def branching_plan() -> Plan:
    """Two sources in a union, a split in three, and one branch written twice."""
    merged = UnionNode(label="union", schema=SCHEMA, merged=(Input(source("file")), Input(source("kafka", path="x"))))
    split = step(merged, Step("split", "errors: status >= 500\nslow: ms > 1000", outputs=("errors", "slow", "rest")))
    slow = step(split, Step("where", "host <> 'a'"), "slow")
    return Plan(
        "web",
        "access",
        [
            sink(split, "to_print", "errors", Table),
            sink(slow, "to_table", kind=KeyedTable),
            sink(slow, "to_file"),
            sink(split, "to_file", "rest"),
        ],
    )


def test_straight_plan_as_text() -> None:
    assert plan_as_text(straight_plan()) == dedent(
        """\
        job security.suspicious-commands

          ●  file               source LogSource
          │                     path     'events/*.ndjson'
          │                     format   'json'
          │                     decodes  all columns
          │                     columns  host: string, user: string, cmdline: string, ts: timestamp
          ○  where              lower(cmdline) LIKE '%curl%' AND user <> 'root'
          ○  select             host, ts, lower(cmdline) AS cmd
          │                     columns  host: string, ts: timestamp, cmd: string
          ○  map                <lambda> at job.py:7
          │                     columns  known row by row
          ■  to_file            sink ExactTable, exactly once

          ◆  dead_letters       bad records of the whole job
          │                     columns  queue: string, offset: int64, index: int32, origin: string, error: string,
          │                              reason: string, preview: string, row: string, body: binary
          ■  dead_letters_file  sink ExactTable, exactly once

        stages
          1  one lane per queue of file: where, select, map → to_file
          2  the way of bad records: dead_letters_file
        """
    )


def test_branching_plan_as_text() -> None:
    assert plan_as_text(branching_plan()) == dedent(
        """\
        job web.access

          ●      file       source LogSource
          │                 path     'events/*.ndjson'
          │                 format   'json'
          │                 decodes  all columns
          │                 columns  host: string, user: string, cmdline: string, ts: timestamp
          │ ●    kafka      source LogSource
          │ │               path     'x'
          │ │               format   'json'
          │ │               decodes  all columns
          │ │               columns  host: string, user: string, cmdline: string, ts: timestamp
          ├─╯
          ○      union      rows of file and kafka together
          ○      split      errors: status >= 500
          │                 slow: ms > 1000
          ├─┬─╮
          │ │ ■  to_print   sink Table, at least once
          │ │               takes  errors of split
          │ ○    where      host <> 'a'
          │ │               takes  slow of split
          │ ├─╮
          │ │ ■  to_table   sink KeyedTable, exactly once by key
          │ ■    to_file    sink ExactTable, exactly once
          ■      to_file-2  sink ExactTable, exactly once
                            takes  rest of split

        stages
          1  one lane per queue of file and kafka: union, split, where → to_print, to_table, to_file, to_file-2

        bad records stop the job: its dead letters go nowhere
        """
    )


def test_branching_plan_as_mermaid() -> None:
    assert plan_as_mermaid(branching_plan()) == dedent(
        """\
        flowchart TD
          subgraph stage1["stage 1: one lane per queue of file and kafka"]
            n0(["<b>file</b><br/>source LogSource<br/>'events/*.ndjson', 'json'"])
            n1(["<b>kafka</b><br/>source LogSource<br/>'x', 'json'"])
            n2(("<b>union</b>"))
            n3["<b>split</b><br/>errors: status #gt;= 500<br/>slow: ms #gt; 1000"]
            n4[("<b>to_print</b><br/>sink Table, at least once")]
            n5["<b>where</b><br/>host #lt;#gt; 'a'"]
            n6[("<b>to_table</b><br/>sink KeyedTable, exactly once by key")]
            n7[("<b>to_file</b><br/>sink ExactTable, exactly once")]
            n8[("<b>to_file-2</b><br/>sink ExactTable, exactly once")]
          end
          n0 -->|"host, user, cmdline, ts"| n2
          n1 -->|"host, user, cmdline, ts"| n2
          n2 --> n3
          n3 -->|"errors"| n4
          n3 -->|"slow"| n5
          n5 --> n6
          n5 --> n7
          n3 -->|"rest"| n8
          classDef source stroke:#2a7de1,stroke-width:2px
          class n0,n1 source
          classDef operator stroke:#7c6fd6,stroke-width:2px
          class n3,n5 operator
          classDef union stroke:#7c6fd6,stroke-width:2px
          class n2 union
          classDef sink stroke:#1f9d6b,stroke-width:2px
          class n4,n6,n7,n8 sink
        """
    )


def test_dead_letters_in_mermaid_hang_on_the_stage_that_they_leave() -> None:
    text = plan_as_mermaid(straight_plan())
    assert '  stage1 -. "bad records" .-> n5\n' in text
    assert '    n5{{"<b>dead_letters</b><br/>bad records of the whole job"}}\n' in text
    assert "bad records" not in plan_as_mermaid(straight_plan(dead_letters=False))


def test_text_says_that_bad_records_stop_a_job_without_dead_letters() -> None:
    assert plan_as_text(straight_plan(dead_letters=False)).endswith(
        "\nbad records stop the job: its dead letters go nowhere\n"
    )


def test_an_edge_that_crosses_others() -> None:
    """Both streams go to both unions: one edge must cross another."""
    left, right = source("left"), source("right")
    one = UnionNode(label="one", schema=SCHEMA, merged=(Input(left), Input(right)))
    two = UnionNode(label="two", schema=SCHEMA, merged=(Input(left), Input(right)))
    graph = [
        line[2:9].rstrip() for line in plan_as_text(Plan("a", "b", [sink(one, "s1"), sink(two, "s2")])).splitlines()
    ]
    drawn = [line for line in graph if set(line) & set("●○■├")]
    assert drawn == ["●", "├─╮", "│ │ ●", "│ │ ├─╮", "│ ├─┼─╯", "│ ○ │", "│ ■ │", "├───╯", "○", "■"]


def test_streams_that_share_nothing_are_stages_beside_each_other() -> None:
    plan = Plan("a", "b", [sink(source("left"), "s1"), sink(source("right"), "s2")])
    assert [stage.nodes for stage in describe_stages(plan)] == [("left", "s1"), ("right", "s2")]
    assert plan_as_text(plan).endswith(
        "stages\n  1  one lane per queue of left: s1\n  2  one lane per queue of right: s2\n\n"
        "bad records stop the job: its dead letters go nowhere\n"
    )


def test_the_way_of_dead_letters_comes_last_even_if_it_was_built_first() -> None:
    bad = DeadLettersNode(label="dead_letters", schema=dead_letter_schema())
    plan = Plan("a", "b", [sink(bad, "to_bad"), sink(source(), "to_good")])
    assert list(plan.nodes) == ["dead_letters", "to_bad", "file", "to_good"]
    assert list(describe_nodes(plan)) == ["file", "to_good", "dead_letters", "to_bad"]


def test_dead_letters_that_join_the_main_flow_are_of_its_stage() -> None:
    schema = dead_letter_schema()
    bad = DeadLettersNode(label="dead_letters", schema=schema)
    shaped = step(source(), Step("select", "…", schema))
    both = UnionNode(label="union", schema=schema, merged=(Input(bad), Input(shaped)))
    (stage,) = describe_stages(Plan("a", "b", [sink(both)]))
    assert stage.roots == ("dead_letters", "file")
    assert not stage.dead_letters


def test_a_source_says_which_columns_it_decodes() -> None:
    plan = Plan("a", "b", [sink(step(source(), Step("select", "user", hr.Schema.of({"user": "string"}), ["user"])))])
    assert describe_nodes(plan)["file"].decoded == ("user",)
    assert "decodes  user (1 of 4 columns)" in plan_as_text(plan)


def test_secrets_and_defaults_do_not_show() -> None:
    plan = Plan("a", "b", [sink(source(password="hunter2", interval="90 s"))])
    for text in (plan_as_text(plan), plan_as_mermaid(plan)):
        assert "hunter2" not in text
    assert describe_nodes(plan)["file"].options == {
        "path": "'events/*.ndjson'",
        "password": "Secret('***')",
        "interval": "'1 min 30 s'",
        "format": "'json'",
    }


def test_very_long_options_are_cut() -> None:
    shown = changed_options(LogSettings.of({"path": "x" * 1000}))
    assert shown == {"path": "'" + "x" * 98 + "…"}


def test_start_position_and_metadata_show() -> None:
    node = source()
    node.source.start = hr.LATEST
    named = SourceNode(label="file", schema=SCHEMA, source=node.source, metadata={"at": "time", "where": "queue"})
    assert describe_nodes(Plan("a", "b", [sink(named)]))["file"].options == {
        "path": "'events/*.ndjson'",
        "start": "'latest'",
        "metadata": "at = time, where = queue",
    }


@pytest.mark.parametrize(
    ("kind", "words"),
    [(Table, "at least once"), (KeyedTable, "exactly once by key"), (ExactTable, "exactly once")],
)
def test_guarantees(kind: type[hr.Sink], words: str) -> None:
    assert guarantee_of(kind()) == words


def test_mermaid_labels_are_escaped() -> None:
    nasty = """a LIKE '%%{init}%%' AND `b` <> "c;d" #end [x] <script> &&"""
    text = plan_as_mermaid(Plan("a", "b", [sink(step(source(), Step("where", nasty)))]))
    (line,) = [line for line in text.splitlines() if "LIKE" in line]
    assert line == (
        """    n1["<b>where</b><br/>a LIKE '#37;#37;{init}#37;#37;' AND #96;b#96; #lt;#gt; #quot;c;d#quot; """
        """#35;end [x] #lt;script#gt; #amp;#amp;"]"""
    )


def test_the_same_job_gives_the_same_text() -> None:
    assert plan_as_text(branching_plan()) == plan_as_text(branching_plan())
    assert plan_as_mermaid(branching_plan()) == plan_as_mermaid(branching_plan())


def test_lines_keep_to_the_width() -> None:
    wide = step(source(), Step("where", " AND ".join(f"column_{number} > {number}" for number in range(60))))
    lines = plan_as_text(Plan("a", "b", [sink(wide)]), width=90).splitlines()
    assert len(lines) > 15
    assert max(map(len, lines)) <= 90


def test_texts_lose_the_indentation_of_the_file_that_they_stand_in() -> None:
    text = """a > 1
                        AND b > 2
                          OR c"""
    plan = Plan("a", "b", [sink(step(source(), Step("where", text)))])
    assert describe_nodes(plan)["where"].arguments == "a > 1\nAND b > 2\n  OR c"
    assert "  ○  where    a > 1\n  │           AND b > 2\n  │             OR c\n" in plan_as_text(plan)


def test_an_unknown_kind_of_node_is_refused() -> None:
    strange = Node(label="strange", schema=SCHEMA)
    with pytest.raises(PlanError, match=r"cannot explain a Node \[job 'a.b', plugin 'strange'\]"):
        describe_nodes(Plan("a", "b", [sink(strange), sink(source(), "other")]))


class TableSettings(hr.Settings, frozen=True, kw_only=True):
    in_pictures: ClassVar[tuple[str, ...]] = ("table",)

    table: Annotated[str, hr.option("which")]
    path: Annotated[str, hr.option("not for small pictures")]


def test_a_small_picture_shows_the_options_that_the_settings_name_for_it() -> None:
    read = source()
    read.source.settings = TableSettings(table="users", path="/secret/place")
    text = plan_as_mermaid(Plan("a", "b", [sink(read)]))
    assert "'users', 'json'" in text
    assert "/secret/place" not in text
