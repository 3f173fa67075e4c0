"""Building jobs: what fits makes a plan, what does not fails before anything starts, saying where."""

from __future__ import annotations

from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import FunctionError, JobError, MissingPluginError, OptionError, PlanError
from headrace.interfaces.operator import Changes, StatefulOperator, StatefulSpec
from headrace.interfaces.registry import Registry
from headrace.jobs.keyed import shuffled
from headrace.plan.graph import OperatorNode, Plan
from headrace.testing import MemorySink, MemorySource

pytest.importorskip("headrace_columnar", reason="the verbs are in headrace-columnar")

SCHEMA = {"a": "int64", "b": "string", "c": "float64"}


def start(**options: Any) -> hr.Stream:
    return hr.stream("test", "dsl").from_(MemorySource({"q": []}), format="json", schema=SCHEMA, **options)


def test_columns_are_known_along_the_way() -> None:
    stream = start().where("a > 1").select("b", d="a + c").rename(b="e")
    assert repr(stream.schema) == "Schema(e: string, d: float64)"
    assert stream.map(lambda row: row).schema is None
    assert repr(stream.map(lambda row: row, schema={"x": "int64"}).schema) == "Schema(x: int64)"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.where("aa > 1"), r"(?s)unknown column 'aa'.*line 1, column 1.*\^\^.*did you mean 'a'"),
        (lambda s: s.where("lowerr(b) = 'x'"), r"(?s)lowerr.*\^.*did you mean 'lower'"),
        (lambda s: s.where("a + 1"), "must be boolean"),
        (lambda s: s.where("b > "), r"(?s)job 'test\.dsl'.*line 1"),
        (lambda s: s.select("zzz"), "unknown column 'zzz'"),
        (lambda s: s.select("a", "a"), "given twice"),
        (lambda s: s.select("a + 1"), "needs a name"),
        (lambda s: s.select(__hr_offset="1"), "reserved"),
        (lambda s: s.select(**{"*": "a"}), r"'\*' is not a name for a column"),
        (lambda s: s.rename(a="^a$"), r"'\^a\$' is not a name for a column"),
        (lambda s: s.drop("bb"), "did you mean 'b'"),
        (lambda s: s.drop("a", "b", "c"), "leave no column"),
        (lambda s: s.rename(a="b"), "column 'b' twice"),
        (lambda s: s.split(rest="a > 1"), "name of the branch for rows that match no condition"),
        (lambda s: s.map("no_such_module:f"), "cannot import module 'no_such_module'"),
        (lambda s: s.map(5), "needs a function"),
        (lambda s: s.map(lambda r: r, schema={"x": "strin"}), "did you mean 'string'"),
        (lambda s: s.map(lambda r: r).map_batches(lambda f: f), "map_batches needs a stream whose columns"),
        (lambda s: s.union(s.select("a")), "different columns"),
        (lambda s: s.script("x = "), "expected an expression"),
        (lambda s: s.with_columns(), "at least one column"),
    ],
)
def test_mistakes_fail_when_the_job_is_built(build: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        build(start())


def test_languages_append_operators_by_name_and_see_what_a_stream_is() -> None:
    pytest.importorskip("headrace_stateful", reason="aggregate is in headrace-stateful")
    stream = start()
    assert stream.changes is None
    counted = shuffled(stream, ("b",)).operator("aggregate", ("b",), {"n": "count(*)"})
    assert counted.changes == Changes(("b",))
    assert counted.select("n").changes == Changes(None)
    assert counted.pipeline is stream.pipeline
    assert isinstance(counted.edge.node, OperatorNode)
    assert counted.edge.node.label == "aggregate"
    job = counted.to(MemorySink())
    assert job.stream is counted
    plan = job.plan()
    assert plan.changes_at(plan.nodes["aggregate"].inputs[0]) is None
    with pytest.raises(MissingPluginError, match="did you mean 'top_n'"):
        stream.operator("topn", (), 1)


def test_unknown_verbs_and_branches_name_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean 'where'"):
        start().wher("a > 1")
    with pytest.raises(AttributeError, match="did you mean 'big'"):
        start().split(big="a > 1").bigg  # noqa: B018
    with pytest.raises(AttributeError, match="a stream has one source"):
        start().from_file("x")
    with pytest.raises(AttributeError, match="start it with from_"):
        hr.stream("a", "b").where("x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "jsn"}, "did you mean 'json'"),
        ({"schema": {"a": "int65"}}, "did you mean 'int64'"),
        ({"schema": None}, "needs a schema"),
        ({"metadata": {"x": "ofset"}}, "did you mean 'offset'"),
        ({"start": "yesterday"}, "neither 'earliest', 'latest' nor a time"),
        ({"start": "2026-01-01T00:00:00"}, "no time zone"),
        ({"max_body_byte": 5}, "did you mean 'max_body_bytes'"),
    ],
)
def test_source_options_are_checked(options: dict[str, Any], message: str) -> None:
    with (
        pytest.raises(OptionError, match=message) if "format" not in options else pytest.raises(JobError, match=message)
    ):
        hr.stream("t", "x").from_(MemorySource(), **{"format": "json", "schema": SCHEMA, **options})


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "a.b"])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(OptionError, match="is not a valid name"):
        hr.stream("ok", name)


def test_functions_by_decorator_name_object_and_path() -> None:
    class Tripler:
        def eval(self, value: int) -> int:
            return 3 * value

    pipe = hr.stream("t", "f", functions={"triple": Tripler})
    stream = pipe.from_(MemorySource(), format="json", schema=SCHEMA).select(x="triple(a)")
    assert repr(stream.schema) == "Schema(x: int64)"
    with pytest.raises(FunctionError, match="does not declare the type that it returns"):
        hr.stream("t", "f", functions={"f": lambda x: x})
    with pytest.raises(FunctionError, match="has no 'nothing'"):
        hr.stream("t", "f", functions={"f": "os.path:nothing"})


def test_node_ids_are_labels_numbered() -> None:
    stream = start().where("a > 1").where("a > 2")
    plan = stream.to(MemorySink()).also(stream.to(MemorySink())).plan()
    assert [name for name in plan.nodes if not name.startswith("dead")] == [
        "memory", "where", "where-2", "to_memory", "to_memory-2",
    ]  # fmt: skip


def test_only_needed_columns_are_decoded() -> None:
    def decoded(stream: hr.Stream) -> list[str]:
        return Plan("t", "x", stream.to(MemorySink()).sink_nodes).decode_columns()["memory"]

    assert decoded(start()) == ["a", "b", "c"]
    assert decoded(start().where("a > 1").select("b")) == ["a", "b"]
    assert decoded(start().select("b")) == ["b"]
    assert decoded(start().drop("b")) == ["a", "c"]
    assert decoded(start().rename(c="d").select("d")) == ["c"]
    assert decoded(start().with_columns(d="a + 1").select("d")) == ["a"]
    assert decoded(start().map(lambda row: row)) == ["a", "b", "c"]
    assert decoded(start().split(x="c > 0").x.select("a")) == ["a", "c"]


def test_one_object_serves_one_place() -> None:
    sink = MemorySink()
    stream = start()
    with pytest.raises(PlanError, match="same MemorySink object"):
        stream.to(sink).also(stream.where("a > 1").to(sink)).plan()


def test_dead_letters_are_routed_once() -> None:
    stream = start()
    one = stream.dead_letters().to(MemorySink())
    two = stream.dead_letters().to(MemorySink())
    with pytest.raises(PlanError, match="routed twice"):
        stream.to(MemorySink()).also(one, two).plan()


def test_jobs_of_other_names_cannot_be_joined() -> None:
    other = hr.stream("test", "other").from_(MemorySource(), format="json", schema=SCHEMA).to(MemorySink())
    with pytest.raises(PlanError, match=r"test\.dsl and test\.other"):
        start().to(MemorySink()).also(other)


def test_plugin_options_by_position_and_name() -> None:
    with pytest.raises(JobError, match="no source 'nothing' is installed"):
        hr.stream("t", "x").from_nothing("path")


def test_a_json_column_passes_through_as_it_is() -> None:
    source = MemorySource(
        {"q": [b'{"id": 1, "rest": {"b": [1.50, null]}}', b'{"id": 2, "rest": "text"}', b'{"id": 3}']}
    )
    sink = MemorySink()
    schema = {"id": "int64", "rest": "json"}
    hr.stream("t", "json").from_(source, format="json", schema=schema).where("id > 0").to(sink).run("light")
    assert [row["rest"] for row in sink.rows] == ['{"b": [1.50, null]}', '"text"', None]


def test_what_a_format_cannot_decode_is_said_when_the_job_is_built() -> None:
    with pytest.raises(JobError, match="'b'"):
        hr.stream("t", "x").from_(MemorySource(), format="raw", pattern="(?P<a>x)", schema={"b": "string"})


def test_a_sink_object_whose_settings_are_of_wrong_types_is_refused() -> None:
    class Settings(hr.SinkSettings, frozen=True, kw_only=True):
        pass

    stream = hr.stream("t", "j").from_(MemorySource({"q": []}), format="json", schema={"a": "int64"})
    with pytest.raises(OptionError, match="flush_interval") as caught:
        stream.to(MemorySink(Settings(flush_interval="1 s")))  # type: ignore[arg-type]
    assert "Settings.of({...})" in str(caught.value)
    sink = MemorySink()
    sink.settings = None  # type: ignore[assignment]
    with pytest.raises(OptionError, match="not SinkSettings"):
        stream.to(sink)


def test_jobs_of_different_names_over_one_source_cannot_be_one() -> None:
    source = MemorySource({"q": []})

    def job(pipeline: str) -> hr.Job:
        stream = hr.stream("test", pipeline).from_(source, format="json", schema=SCHEMA)
        return stream.to(MemorySink())

    with pytest.raises(PlanError, match=r"test\.theirs and test\.ours") as caught:
        hr.job(job("theirs"), job("ours"))
    assert "build both from the same hr.stream(namespace, pipeline)" in str(caught.value)
    assert "hr.job(…, name='…')" in str(caught.value)


def _named(pipeline: str, *, bad_records: str = "stop") -> hr.Job:
    pipe = hr.stream("test", pipeline, bad_records=bad_records)
    return pipe.from_(MemorySource({"q": []}), format="json", schema=SCHEMA).to(MemorySink())


def test_jobs_of_different_names_become_a_job_with_a_name_of_its_own() -> None:
    theirs, ours = _named("theirs"), _named("ours")
    theirs.plan()  # its sink has been told a name, as when the job was checked or shown
    both = hr.job(theirs, ours, name="both")
    plan = both.plan()
    assert (both.name, plan.job_name) == ("test.both", "test.both")
    assert {node.sink.writer_name for node in plan.sinks.values()} == {"test.both.to_memory", "test.both.to_memory-2"}
    with pytest.raises(PlanError, match=r"writes for the job 'test\.both' already"):
        theirs.plan()
    assert hr.job(_named("a"), _named("b"), name="other.all").name == "other.all"


def test_a_job_of_several_takes_more_sinks() -> None:
    both = hr.job(_named("theirs"), _named("ours"), name="both")
    more = both.to(MemorySink())
    assert more.name == "test.both"
    assert len(more.plan().sinks) == 3
    assert len(hr.job(more, _named("third"), name="all").plan().sinks) == 4
    with pytest.raises(PlanError, match=r"test\.both and test\.fourth"):
        hr.job(more, _named("fourth"))


def test_what_several_jobs_make_together_must_be_clear() -> None:
    with pytest.raises(OptionError, match="is not a valid name"):
        hr.job(_named("a"), _named("b"), name="no name")
    with pytest.raises(PlanError, match="one of these jobs stops at a bad record"):
        hr.job(_named("a"), _named("b", bad_records="dead_letters"), name="both")


class Remembering(StatefulSpec):
    """An operator with state, for tests that build jobs."""

    name = "remembering"

    def __init__(self, keys: tuple[str, ...] = (), *, limit: int = 0) -> None:
        self.keys = keys
        self.limit = limit

    def output_schema(self, schema: hr.Schema | None, output: str = "") -> hr.Schema | None:
        return schema

    def open(self, schema: hr.Schema | None) -> StatefulOperator:
        raise NotImplementedError


class Forgetting(hr.OperatorSpec):
    """One without."""

    name = "forgetting"

    def output_schema(self, schema: hr.Schema | None, output: str = "") -> hr.Schema | None:
        return schema

    def open(self, schema: hr.Schema | None) -> hr.Operator:
        raise NotImplementedError


def test_an_operator_with_state_comes_behind_keys() -> None:
    keyed = start().key_by("a", "b").apply(Remembering())
    [node] = Plan("t", "p", keyed.to(MemorySink()).sink_nodes).shuffles.values()
    assert node.keys == (("a", "b"),)
    assert start().key_by("a").apply(Remembering(("a", "b"))).schema == keyed.schema, "these are not spread either"
    assert keyed.where("a > 1").apply(Remembering()).schema == keyed.schema, "the rows are still where their key is"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda s: s.apply(Remembering()),
            r"(?s)remembering\(\) keeps state by key.*key_by\('column'\)",
        ),
        (lambda s: s.where("a > 1").apply(Remembering()), "keeps state by key, but"),
        (lambda s: s.key_by("a").apply(Remembering()).union(s).apply(Remembering()), "keeps state by key, but"),
        (lambda s: s.key_by("a").apply(Forgetting()), "forgetting.. keeps no state"),
        (lambda s: s.key_by("a").where("a > 1"), "where.. keeps no state"),
        (lambda s: s.key_by("a").ttl("1 h").apply(Remembering()), "cannot be combined with ttl"),
        (
            lambda s: s.key_by("a").ttl("1 h").process(print, schema={}),
            r"(?s)process\(\) cannot be combined with ttl.*let a timer",
        ),
        (
            lambda s: s.key_by("a").ttl("1 h").window(hr.tumbling("1 h", on="ts")),
            r"(?s)window\(\) cannot be combined with ttl.*removed when it closes",
        ),
        (
            lambda s: s.key_by("a").apply(Remembering(("b",))),
            r"has the keys b, but key_by\(\) has divided the stream by a",
        ),
    ],
)
def test_operators_in_the_wrong_place(build: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        build(start())


def test_an_operator_with_state_is_a_verb_of_keyed_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plugin:
        @hr.hookimpl
        def headrace_operators(self) -> dict[str, type[hr.OperatorSpec]]:
            return {"remembering": Remembering}

    registry = Registry()
    registry.register(Plugin(), "remembering")
    for module in ("headrace.jobs.keyed", "headrace.jobs.dsl"):
        monkeypatch.setattr(f"{module}.default_registry", lambda: registry)
    made = start().key_by("b").remembering(limit=3)
    spec = made._edge.node.spec
    assert (spec.keys, spec.limit) == (("b",), 3)
    with pytest.raises(PlanError, match="cannot be combined with ttl"):
        start().key_by("b").ttl("1 h").remembering(limit=3)
    with pytest.raises(AttributeError, match="a keyed stream has no verb 'wundow'; did you mean 'window'"):
        start().key_by("b").wundow  # noqa: B018
