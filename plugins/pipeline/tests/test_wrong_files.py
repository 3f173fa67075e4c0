"""What is wrong with a file is told with its place, and how to mend it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from headrace_pipeline import PipelineError, pipeline
from pipeline_files import Write, error_of

GOOD = """
    name: orders
    sources:
      orders: {connector: file, path: orders.ndjson, format: json, schema: {id: int64, note: STRING}}
    steps:
      - where: id > 1
      - select: [id, note]
    sinks:
      large: {connector: print}
"""

SEVERAL = """
    name: orders
    sources:
      orders: {connector: file, path: orders.ndjson, format: json, schema: {id: int64}, pth: 1, foo: 2}
      others: {connector: file, path: others.ndjson, format: json, schema: {id: int64}}
    steps:
      - from: orders
        where: status > 1
      - select: [whatever]
        as: hidden
      - from: others
        where: nothing > 1
        as: wrong
      - from: others
        route: {outputs: {low: id < 1, high: ids > 1}, default: middle}
      - from: others
        select: [id]
        as: fine
    sinks:
      a: {from: hidden, connector: printt}
      b: {from: middle, connector: print, formt: json}
      c: {from: nowhere, connector: print}
      d: {from: fine, connector: print}
"""

#: What is replaced in the good file, by what, and the message.
WRONG = {
    "an unknown key of the file": (
        "sinks:", "sink:",
        "pipeline.yaml, line 7, column 1: a pipeline has no key 'sink' [option 'sink']\n"
        "    sink:\n    ^\n  hint: did you mean 'sinks'?",
    ),
    "a key that comes twice": (
        "name: orders", "name: orders\n    name: others",
        "pipeline.yaml, line 2, column 1: the key 'name' comes twice\n"
        "    name:…\n    ^\n  hint: the first one is in line 1",
    ),
    "a key that is missing": (
        "name: orders\n", "\n", "line 1, column 1: a pipeline needs the key 'name' [option 'name']",
    ),
    "an unknown option": (
        "path: orders", "pth: orders",
        "line 3, column 29: source 'orders' has no key 'pth' [option 'pth']",
    ),
    "an option of a sink": (
        "connector: print", "connector: print, tagret: stderr",
        "line 8, column 29: sink 'large' has no key 'tagret' [option 'tagret']",
    ),
    "an unknown connector": ("connector: file", "connector: fiel", "line 3, column 23: no source 'fiel' is installed"),
    "a connector that is not installed": ("connector: print", "connector: nothing", "line 8, column 22: no sink 'nothing'"),
    "an unknown type": ("STRING", "STRIN", "line 3, column 90: unknown type 'STRIN' for column 'note'"),
    "an unknown format": ("format: json", "format: jsn", "line 3, column 58: no codec 'jsn' is installed"),
    "an unknown verb": (
        "where:", "filtr:", "line 5, column 5: a step has no key 'filtr' [option 'filtr']",
    ),
    "a verb of Python": ("where:", "map:", "line 5, column 5: 'map' takes what only Python can give"),
    "two verbs in a step": (
        "- select:", "  select:",
        "line 6, column 5: a step does one thing, and this one has 'where' and 'select'",
    ),
    "a step without a verb": ("where: id > 1", "as: x", "line 5, column 5: the step says not what to do"),
    "an unknown column": (
        "id > 1", "id > 1 AND ide < 3",
        "line 5, column 23: unknown column 'ide' [plugin 'where']\n"
        "      - where: id > 1 AND ide < 3\n" + " " * 26 + "^\n  hint: did you mean 'id'?",
    ),
    "an unknown column in quotes": ("id > 1", "'ide < 3'", "line 5, column 13: unknown column 'ide'"),
    "an unknown column in a text of lines": (
        "id > 1", "|\n          id > 1\n          AND ide < 3", "line 7, column 11: unknown column 'ide'",
    ),
    "an unknown column in a list": ("[id, note]", "[id, lower(nte) AS n]", "line 6, column 24: unknown column 'nte'"),
    "a list instead of a text": ("id > 1", "[id]", "line 5, column 12: expected a SQL expression, found a list"),
    "a text instead of a mapping": (
        "{connector: print}", "print", "line 8, column 10: expected keys and values, found a text",
    ),
    "a name that nothing has": (
        "{connector: print}", "{connector: print, from: ordes}",
        "line 8, column 35: nothing before this is called 'ordes'\n",
    ),
    "a name that nothing reads": (
        "- select: [id, note]", "- select: [id, note]\n        as: chosen\n      - {from: orders, where: id < 1}",
        "line 7, column 9: nothing reads 'chosen'",
    ),
    "a step that nothing reads": (
        "- select: [id, note]", "- select: [id, note]\n      - {from: orders, where: id < 1}",
        "line 6, column 5: nothing reads the step 'select'",
    ),
    "a name that is taken": (
        "where: id > 1", "where: id > 1\n        as: orders", "line 6, column 9: 'orders' is already the name",
    ),
    "no sink": ("large: {connector: print}", "", "line 7, column 7: sinks needs an entry"),
    "a name of the job": ("name: orders", "name: a b", "line 1, column 7: 'a b' is not a valid name"),
    "a namespace": ("name: orders\n", "name: orders\n    namespace: a b\n", "line 2, column 12: 'a b' is not a valid name"),
    "what becomes of bad records": ("name: orders\n", "name: orders\n    bad_records: x\n", "line 2, column 14: unusable value 'x'"),
    "a number as name": ("name: orders", "name: 5", "line 1, column 7: expected a text, found 5\n"),
    "no YAML": ("[id, note]", "[id, note", "pipeline.yaml, line 7, column 6: this is not YAML: expected ',' or ']'"),
    "a tag": ("id > 1", "!!python/object/apply:os.abort []", "line 5, column 12: the tag 'tag:yaml.org,2002:python/"),
    "a tag of its own": ("id > 1", "!where id > 1", "line 5, column 12: the tag '!where' has no meaning here"),
    "a merge key": ("- where: id > 1", "- <<: {where: id > 1}", "line 5, column 5: a step has no key '<<'"),
    "a variable without a value": (
        "id > 1", "id > ${LEAST}", "line 5, column 17: the variable 'LEAST' has no value\n",
    ),
    "a variable that is a secret": (
        "id > 1", "note = '${DB_PASSWORD}'", "line 5, column 20: 'DB_PASSWORD' is the name of a secret",
    ),
    "a place that is not a variable": ("id > 1", "note = '${file:x}'", "line 5, column 20: '${file:x}' is not a variable"),
    "metadata of nothing": (
        "format: json", "format: json, metadata: {q: null}", "line 3, column 78: expected a text, found nothing",
    ),
    "metadata that there is not": (
        "format: json", "format: json, metadata: {q: quue}", "line 3, column 78: unknown header field 'quue'",
    ),
    "a route without a default": (
        "select: [id, note]", "route: {outputs: {a: id > 1}}", "line 6, column 12: route needs the key 'default'",
    ),
    "a name of a route that is taken": (
        "select: [id, note]", "route: {outputs: {orders: id > 1}, default: b}", "line 6, column 23: 'orders' is already the name",
    ),
    "a name of a route that cannot be": (
        "select: [id, note]", "route: {outputs: {rest: id > 1}, default: b}",
        "line 6, column 29: 'rest' is the name of the branch for rows that match no condition",
    ),
    "a condition of a route": (
        "select: [id, note]", "route: {outputs: {a: ide > 1}, default: b}", "line 6, column 26: unknown column 'ide'",
    ),
    "an output that nothing reads": (
        "select: [id, note]\n    sinks:\n      large: {connector: print}",
        "route: {outputs: {a: id > 1}, default: b}\n    sinks:\n      large: {connector: print, from: a}",
        "line 6, column 44: nothing reads 'b'",
    ),
    "a sink behind a route that names no output": (
        "select: [id, note]", "route: {outputs: {a: id > 1}, default: b}",
        "line 8, column 10: sink 'large' must say what it reads: from: orders or a or b",
    ),
    "a name for a route": (
        "select: [id, note]", "route: {outputs: {a: id > 1}, default: b}\n        as: c",
        "line 7, column 9: a route gives several results",
    ),
    "a table that there is not": (
        "select: [id, note]", "lookup: {table: users, on: id}", "line 6, column 21: nothing before this is called 'users'",
    ),
    "an option of a lookup": (
        "select: [id, note]", "lookup: {table: orders, on: id, hwo: left}", "line 6, column 37: lookup has no key 'hwo'",
    ),
    "a number of a lookup": (
        "select: [id, note]", "lookup: {table: orders, on: id, threads: many}", "line 6, column 46: unusable value 'many'",
    ),
    "a column of a lookup": (
        "select: [id, note]", "lookup: {table: orders, on: ide}", "the table has no column 'ide'",
    ),
    "rules from two places": (
        "select: [id, note]", "rules: {file: x.yaml, inline: {a: id > 1}}", "line 6, column 12: rules come from one place",
    ),
    "a rule that is wrong": (
        "select: [id, note]", "rules: {inline: {a: ide > 1}}", "unknown column 'ide'",
    ),
    "a file of rules that there is not": ("select: [id, note]", "rules: none.yaml", "none.yaml"),
    "an option of rules": ("select: [id, note]", "rules: {file: x, outptu: tag}", "line 6, column 22: rules has no key 'outptu'"),
    "a window of no kind": (
        "select: [id, note]", "aggregate: {columns: {n: count(*)}, window: {hopping: 1 s}}",
        "line 6, column 49: a window is of one kind [option 'window']",
    ),
    "an option of a window": (
        "select: [id, note]", "aggregate: {columns: {n: count(*)}, window: {tumbling: 1 s, evry: 1 s}}",
        "line 6, column 65: a tumbling window has no key 'evry'",
    ),
    "a window without a step": (
        "select: [id, note]", "aggregate: {columns: {n: count(*)}, window: {sliding: 1 s}}", "a sliding window needs the key 'every'",
    ),
    "a length that is none": (
        "select: [id, note]", "aggregate: {columns: {n: count(*)}, window: {tumbling: long}}", "'long' is not a duration",
    ),
    "late without a window": (
        "select: [id, note]", "aggregate: {columns: {n: count(*)}, late: 1 s}", "line 6, column 41: belongs to a window",
    ),
    "an aggregate that there is not": (
        "select: [id, note]", "aggregate: {columns: {n: cuont(*)}}", "line 6, column 30: unknown function 'cuont'",
    ),
    "a format that is a source's": (
        "select: [id, note]", "parse: {format: debezium-json, on: note, schema: {a: int64}}",
        "line 6, column 21: format 'debezium-json' reads more than one text",
    ),
    "an option of a format": (
        "select: [id, note]", "parse: {format: json, on: note, schema: {a: int64}, maxbody: 1}",
        "line 6, column 57: parse has no key 'maxbody'",
    ),
    "a column that there is already": (
        "select: [id, note]", "parse: {format: json, on: note, schema: {id: int64}}", "'id' is a column already",
    ),
    "nothing to parse by": ("select: [id, note]", "parse: {on: note}", "line 6, column 12: parse needs grok: PATTERN or format"),
    "dead letters that there are not": (
        "name: orders", "name: orders\n    bad_records: stop\n    dead_letters: {connector: print}",
        "line 3, column 15: with bad_records: stop there are no dead letters",
    ),
}  # fmt: skip


def test_the_good_file_is_good(write: Write) -> None:
    assert pipeline(write(GOOD)).name == "pipelines.orders"


@pytest.mark.parametrize("what", WRONG)
def test_wrong(write: Write, what: str) -> None:
    before, after, expected = WRONG[what]
    assert before in GOOD
    assert expected in error_of(write(GOOD.replace(before, after, 1)))


def test_there_is_no_file(tmp_path: Path) -> None:
    assert error_of(tmp_path / "none.yaml") == "none.yaml: cannot be read: No such file or directory"


def test_no_text(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"name: \xff")
    assert "p.yaml: is not UTF-8" in error_of(path)
    path.write_bytes(b"# nothing\n")
    assert "p.yaml: the file is empty" in error_of(path)
    path.write_text("a: 1\n---\nb: 2\n")
    assert "this is not YAML: but found another document" in error_of(path)
    path.write_text("name: \x00\n")
    assert "this is not YAML: unacceptable character" in error_of(path)
    path.write_text("[" * 1000)
    assert "values nest deeper than 50 levels" in error_of(path)


def test_aliases_that_stand_for_too_much(write: Write) -> None:
    lines = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))
    path = write("a0: &a0 [1]\n" + lines)
    assert "aliases stand for too many values" in error_of(path)
    assert "aliases stand for too many values" in error_of(write("a: &a [*a]"))


def test_an_alias_is_what_it_stands_for(write: Write) -> None:
    made = GOOD.replace("id > 1", "&least id > 1").replace("- select", "- where: *least\n      - select")
    assert len(pipeline(write(made)).plan().nodes) > 0


def test_a_secret_does_not_show(write: Write) -> None:
    line = "large: {connector: mysql, table: t, host: h, database: d, user: u, passwrd: hunter2}"
    for wrong in (line, line.replace("passwrd", "password").replace("table", "tabel")):
        said = error_of(write(GOOD.replace("large: {connector: print}", wrong)))
        assert "hunter2" not in said
    below = "large:\n        password:\n          !secret hunter2\n"
    said = error_of(write(GOOD.replace("large: {connector: print}", below)))
    assert "hunter2" not in said
    assert "line 10, column 7: the tag '!secret' has no meaning here\n" in said


def test_the_error_passes_process_borders(write: Write) -> None:
    with pytest.raises(PipelineError) as caught:
        pipeline(write(GOOD.replace("id > 1", "ide > 1")))
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (copy.line, copy.column, copy.file) == (5, 12, caught.value.file)
    assert str(copy) == str(caught.value)


def test_all_that_is_wrong_is_told_at_once(write: Write) -> None:
    """But nothing about what reads a wrong part, beside keys: it may be right once that is mended."""
    with pytest.raises(PipelineError) as raised:
        pipeline(write(SEVERAL))
    said = [
        line.partition("pipeline.yaml, ")[2] for line in str(raised.value).splitlines() if "pipeline.yaml, " in line
    ]
    assert said == [
        "line 3, column 85: source 'orders' has no key 'pth' [option 'pth']",
        "line 3, column 93: source 'orders' has no key 'foo' [option 'foo']",
        "line 11, column 12: unknown column 'nothing' [plugin 'where']",
        "line 14, column 42: unknown column 'ids' [plugin 'split']",
        "line 19, column 32: no sink 'printt' is installed [plugin 'printt']",
        "line 20, column 39: sink 'b' has no key 'formt' [option 'formt']",
        "line 21, column 13: nothing before this is called 'nowhere'",
    ]
    assert (raised.value.line, raised.value.column) == (3, 85)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301


def test_a_variable_without_quotes_within_braces(write: Write) -> None:
    with pytest.raises(PipelineError, match="this is not YAML") as raised:
        pipeline(write("name: x\nsources:\n  a: {connector: file, path: ${LOG}}\n"))
    assert raised.value.hint == 'within braces and brackets a variable is in quotes: {password: "${NAME}"}'
