"""Connectors of tables: what a plug-in declares for SQL texts is what they may write, a stranger's like those of the workspace."""

# ruff: noqa: S608  # texts are put together from constants

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import headrace as hr
import msgspec
import polars as pl
import pytest
from headrace.codecs.json import JsonCodec
from headrace.foundation.errors import ExpressionError, MissingPluginError
from headrace.interfaces.hookspecs import hookimpl
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.sink import SinkBatch, SinkSettings
from headrace.interfaces.table_options import TableOptions, ignored
from headrace.testing import MemorySource

#: What the toy's sources and sinks were made of, and the rows that came.
made: list[dict[str, Any]] = []
rows: list[dict[str, Any]] = []


class ToySettings(Settings, frozen=True, kw_only=True):
    shelf: Annotated[str, option("where records lie")]
    speed: Annotated[int, option("how fast")] = 1
    extras: Annotated[dict[str, str], option("further settings")] = msgspec.field(default_factory=dict)


class ToySinkSettings(SinkSettings, frozen=True, kw_only=True):
    shelf: Annotated[str, option("where rows go")]
    label: Annotated[str, option("the column that names a row")] = ""


def _shelf(text: str) -> Mapping[str, Any]:
    if not text.startswith("toy://"):
        raise ValueError("only toy://shelf is supported")
    return {"shelf": text.removeprefix("toy://")}


def _label(key: Sequence[str]) -> Mapping[str, Any]:
    return {"label": "-".join(key)}


class ToySource(MemorySource):
    Settings: ClassVar[type[Settings]] = ToySettings
    table_options: ClassVar[Mapping[str, TableOptions]] = {
        "toy": TableOptions(
            {"url": _shelf, "consumer": ignored},
            {"toy.colour": "all toys are grey"},
            {"toy.extra.": "extras"},
            format="json",
        ),
        "old-toy": TableOptions(refused="use 'toy'"),
    }

    def __init__(self, settings: ToySettings) -> None:
        super().__init__({"q": [b'{"a": 1, "b": "x"}', b'{"a": 2, "b": "y"}']})
        self.settings = settings
        made.append(msgspec.structs.asdict(settings))


class ToySink(hr.Sink):
    Settings: ClassVar[type[SinkSettings]] = ToySinkSettings
    table_options: ClassVar[Mapping[str, TableOptions]] = {
        "toy": TableOptions({"url": _shelf, "producer": ignored}, with_key=_label),
        "toy-box": TableOptions({"box": "shelf"}),
    }

    def __init__(self, settings: ToySinkSettings) -> None:
        self.settings = settings
        made.append({"shelf": settings.shelf, "label": settings.label})

    def batch_insert(self, batch: SinkBatch) -> None:
        rows.extend(batch.rows())


class ToyCodecSettings(Settings, frozen=True, kw_only=True):
    row_mark: Annotated[str, option("what ends a row")] = ""
    as_written: Annotated[bool, option("whether blanks are kept")] = True


class ToyCodec(JsonCodec):
    """JSON, with options of its own."""

    Settings: ClassVar[type[Settings]] = ToyCodecSettings

    def __init__(self, settings: ToyCodecSettings) -> None:
        super().__init__()
        made.append(msgspec.structs.asdict(settings))


class ToyPlugin:
    @hookimpl
    def headrace_codecs(self) -> Mapping[str, type[ToyCodec]]:
        return {"toy-lines": ToyCodec}

    @hookimpl
    def headrace_sources(self) -> Mapping[str, type[ToySource]]:
        return {"toy": ToySource}

    @hookimpl
    def headrace_sinks(self) -> Mapping[str, type[ToySink]]:
        return {"toy": ToySink}

    @hookimpl
    def headrace_connectors(self) -> Mapping[str, str]:
        return {"toy-box": "toy", "old-toy": "toy"}


@pytest.fixture(autouse=True)
def toys() -> Iterator[None]:
    default_registry.cache_clear()
    default_registry().register(ToyPlugin(), "toys")
    made.clear()
    rows.clear()
    yield
    default_registry.cache_clear()


def table(name: str, columns: str, **options: str) -> str:
    given = ", ".join(f"'{key.replace('__', '.').replace('_', '-')}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({given});"


SOURCE = table("t", "a BIGINT, b STRING", connector="toy", url="toy://top")
SINK = table("s", "a BIGINT, b STRING, PRIMARY KEY (a, b) NOT ENFORCED", connector="toy", url="toy://low")


def test_a_strangers_connector_is_written_as_it_declares() -> None:
    given = table(
        "t", "a BIGINT, b STRING", connector="Toy", url="toy://top", speed="7", toy__colour="red", toy__extra__hat="on"
    )
    job = hr.sql(given + SINK + "INSERT INTO s SELECT a, b FROM t WHERE a > 1")
    assert made == [{"shelf": "top", "speed": 7, "extras": {"hat": "on"}}, {"shelf": "low", "label": "a-b"}]
    assert job.notices == ("table 't': option 'toy.colour' has no effect here: all toys are grey",)
    job.run(backend="light")
    assert [(row["a"], row["b"]) for row in rows] == [(2, "y")]


def test_a_strangers_format_is_given_its_options() -> None:
    options = {"connector": "toy", "url": "toy://top", "format": "toy-lines"}
    text = table("t", "a BIGINT", **options, toy_lines__row_mark=";", toy_lines__as_written="false")
    assert hr.sql(text + "SELECT a FROM t").collect().rows() == [(1,), (2,)]
    assert {"row_mark": ";", "as_written": False} in made
    wrong = table("t", "a BIGINT", **options, toy_lines__row_marc=";")
    with pytest.raises(ExpressionError, match=r"(?s)format 'toy-lines' has no option 'row-marc'.*'row-mark'"):
        hr.sql(wrong + "SELECT a FROM t")


def test_a_name_of_its_own_for_one_direction() -> None:
    box = table("s", "a BIGINT, b STRING", connector="toy-box", box="deep")
    hr.sql(SOURCE + box + "INSERT INTO s SELECT * FROM t")
    assert made[-1] == {"shelf": "deep", "label": ""}
    with pytest.raises(ExpressionError, match="table 's' cannot be read from: connector 'toy-box'"):
        hr.sql(box + "SELECT * FROM s")


def test_what_the_text_says_goes_before_what_follows_from_the_key() -> None:
    given = table("s", "a BIGINT, PRIMARY KEY (a) NOT ENFORCED", connector="toy", url="toy://low", label="mine")
    hr.sql(SOURCE + given + "INSERT INTO s SELECT a FROM t")
    assert made[-1] == {"shelf": "low", "label": "mine"}


def test_options_of_the_other_direction_say_nothing_here() -> None:
    given = table("t", "a BIGINT", connector="toy", url="toy://top", producer="p", consumer="c")
    assert hr.sql(given + "SELECT * FROM t").notices == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (table("t", "a BIGINT", connector="toy", url="box"), r"option 'url' = 'box': only toy://shelf is supported"),
        (table("t", "a BIGINT", connector="toy", shelfs="x"), r"(?s)connector 'toy' has no option 'shelfs'.*'shelf'"),
        (table("t", "a BIGINT", connector="old-toy"), r"connector 'old-toy': use 'toy'"),
        (table("t", "a BIGINT", connector="toys"), r"(?s)unknown connector 'toys'.*'toy'"),
        (table("t", "a BIGINT", connector="upsert-kafak"), r"(?s)unknown connector 'upsert-kafak'.*'upsert-kafka'"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        hr.sql(text + "SELECT * FROM t")


@pytest.mark.parametrize(
    ("name", "package"), [("kafka", "headrace-kafka"), ("upsert-kafka", "headrace-kafka"), ("jdbc", "headrace-mysql")]
)
def test_a_connector_that_is_not_installed_says_what_to_install(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_PLUGINS", "sql,columnar")
    default_registry.cache_clear()
    with pytest.raises(MissingPluginError, match=f"'{name}' is installed.*\n.*pip install {package}"):
        hr.sql(table("t", "a BIGINT", connector=name, topic="x") + "SELECT * FROM t")


def declared() -> Iterator[tuple[str, str, TableOptions, type[Settings]]]:
    registry = default_registry()
    for kind in ("source", "sink"):
        for plugin in registry.names(kind):
            offered = registry.find(kind, plugin)
            for name, options in offered.table_options.items():
                yield f"{kind} {plugin} as {name}", plugin, options, offered.Settings
                assert name == plugin or registry.find("connector", name) == plugin


def test_what_connectors_declare_names_options_that_they_have() -> None:
    seen = set()
    for place, plugin, options, settings in declared():
        seen.add(plugin)
        fields = {each.encode_name for each in msgspec.structs.fields(settings)} | {"format"}
        named = [target for target in options.options.values() if isinstance(target, str)]
        named += [*options.prefixes.values(), *([options.columns_option] if options.columns_option else [])]
        assert set(named) <= fields, place
        assert set(options.with_key(("k",))) <= fields, place
    assert {"kafka", "rocketmq", "file", "mysql", "elasticsearch", "print", "datagen", "toy"} <= seen


def test_every_further_name_of_a_connector_is_declared() -> None:
    registry = default_registry()
    for name in registry.names("connector"):
        plugin = registry.find("connector", name)
        found = [registry.find(kind, plugin) for kind in ("source", "sink") if registry.has(kind, plugin)]
        assert any(name in offered.table_options for offered in found), name


def test_rows_of_a_toy_are_read_as_json_by_default() -> None:
    assert hr.sql(SOURCE + "SELECT * FROM t").collect().rows() == [(1, "x"), (2, "y")]
    assert pl.DataFrame(made)["shelf"].to_list() == ["top"]


FLINK_OPTIONS = {
    "jdbc": ("'url' = 'jdbc:mysql://h/d', 'table-name' = 't'", {
        "sink.max-retries": "3", "sink.parallelism": "2", "sink.buffer-flush.max-rows": "100", "scan.fetch-size": "50",
        "lookup.cache": "PARTIAL",
        "scan.partition.column": "id",
    }),
    "elasticsearch-7": ("'hosts' = 'http://h:9200', 'index' = 'i'", {
        "sink.bulk-flush.max-size": "2mb", "sink.bulk-flush.backoff.strategy": "CONSTANT", "failure-handler": "ignore",
        "connection.timeout": "1 s",
        "sink.flush-on-checkpoint": "true",
    }),
    "filesystem": ("'path' = '/nowhere', 'format' = 'csv'", {
        "sink.rolling-policy.file-size": "1MB", "compaction.file-size": "1MB", "sink.shuffle-by-partition.enable": "true",
    }),
    "kafka": ("'topic' = 't', 'properties.bootstrap.servers' = 'h:1', 'format' = 'json'", {
        "sink.partitioner": "fixed", "json.map-null-key.mode": "DROP",
    }),
}  # fmt: skip


@pytest.mark.parametrize(
    ("connector", "key", "value"),
    [(name, key, value) for name, (_, few) in FLINK_OPTIONS.items() for key, value in few.items()],
)
def test_options_of_flinks_runtime_are_taken_with_a_notice(connector: str, key: str, value: str) -> None:
    others, _ = FLINK_OPTIONS[connector]
    text = f"CREATE TABLE o (id INT) WITH ('connector' = '{connector}', {others}, '{key}' = '{value}'); INSERT INTO o VALUES (1)"
    [notice] = hr.sql(text).notices
    assert notice.startswith(f"table 'o': option {key!r} has no effect here: ")


@pytest.mark.parametrize(
    ("connector", "option", "message"),
    [
        ("elasticsearch-7", "'connection.path-prefix' = '/v1'", "write the path in 'hosts'"),
        ("elasticsearch-7", "'sink.delivery-guarantee' = 'exactly-once'", "at-least-once"),
        ("filesystem", "'partition.default-name' = 'none'", "is the name of the directory for NULL"),
        ("filesystem", "'csv.escape-character' = '/'", "a quote within a quoted field is doubled"),
        ("filesystem", "'csv.array-element-delimiter' = ','", "a list is written as JSON"),
        ("kafka", "'json.encode.ignore-null-fields' = 'true'", "a column that is NULL is written as null"),
    ],
)
def test_options_that_would_change_rows_are_refused_with_the_reason(connector: str, option: str, message: str) -> None:
    others, _ = FLINK_OPTIONS[connector]
    with pytest.raises(ExpressionError, match=message):
        hr.sql(
            f"CREATE TABLE o (id INT) WITH ('connector' = '{connector}', {others}, {option}); INSERT INTO o VALUES (1)"
        )


def test_fields_without_quotes() -> None:
    options = (
        "'connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'csv', 'csv.disable-quote-character' = 'true'"
    )
    text = f"CREATE TABLE o (id STRING) WITH ({options});"
    node = hr.sql(text + "INSERT INTO o VALUES ('1')").plan().sinks["o"]
    assert vars(node.sink)["settings"].format_options["quote"] is None


def test_a_primary_key_of_several_columns_is_the_id_of_a_document() -> None:
    options = "'connector' = 'elasticsearch-7', 'hosts' = 'http://a:9200;http://b:9200', 'index' = 'i', 'document-id.key-delimiter' = '$'"
    text = f"CREATE TABLE o (a INT, b STRING, PRIMARY KEY (a, b) NOT ENFORCED) WITH ({options}); INSERT INTO o VALUES (1, 'x')"
    settings = vars(hr.sql(text).plan().sinks["o"].sink)["settings"]
    assert (settings.id_template, settings.url) == ("{a}${b}", ["http://a:9200", "http://b:9200"])


def test_a_table_that_is_read_may_have_options_of_writing() -> None:
    options = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:1', 'create-topic' = 'true', 'linger' = '1 ms'"
    assert hr.sql(f"CREATE TABLE o (id INT) WITH ({options}); SELECT * FROM o").notices == ()
    with pytest.raises(ExpressionError, match="has no option 'creat-topic'"):
        hr.sql(f"CREATE TABLE o (id INT) WITH ({options}, 'creat-topic' = 'true'); SELECT * FROM o")
