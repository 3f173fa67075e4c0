"""``headrace test``: cases that are as expected pass, and every kind of difference is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace_console.app import app
from headrace_pipeline import PipelineError
from headrace_pipeline.cases import cases_of
from headrace_pipeline.compiling import PipelineFile
from headrace_pipeline.testing import run_cases
from pipeline_files import Write, text_of
from typer.testing import CliRunner, Result

PIPELINE = """
    name: orders
    variables: {LEAST: 10}
    sources:
      orders:
        connector: kafka
        servers: ${KAFKA}
        topic: orders
        group: g
        start: latest
        format: json
        schema: {id: int64, note: string, amount: "decimal(10, 2)", at: timestamp}
        metadata: {queue: queue}
      table:
        connector: mysql
        host: ${MYSQL}
        database: d
        user: me
        password: ${DB_PASSWORD}
        table: t
        schema: {id: int64, note: string, amount: "decimal(10, 2)", at: timestamp}
    steps:
      - from: orders
        drop: queue
      - union: [table]
      - where: amount >= ${LEAST}
        as: large
      - with_columns: {half: amount / 2}
      - select: [id, half]
    sinks:
      halves: {connector: kafka, servers: "${KAFKA}", topic: halves}
      large: {from: large, connector: file, path: "${OUT}", format: json}
    cases:
"""
GOOD = """
      - name: lines and rows
        in:
          orders: |
            {"id": 1, "note": "é", "amount": "12.5", "at": "2026-01-01T00:00:00Z"}
            {"id": 2, "amount": 1}
            {"id": "none"}
          table:
            - {id: 3, amount: 10, at: 2026-01-01 01:00:00+01:00}
            - {id: 4}
        out:
          halves:
            - {id: 3, half: 5}
            - {id: 1, half: 6.25}
          large:
            - {id: 1, note: é, amount: 12.50, at: 2026-01-01 00:00:00}
            - {id: 3, amount: 10, at: 2026-01-01T00:00:00Z}
        dead_letters:
          - {origin: orders, reason: expected int64, line: '{"id": "none"}'}
"""


def headrace(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKA", "MYSQL", "DB_PASSWORD", "OUT", "LEAST"):
        monkeypatch.delenv(name, raising=False)


def test_cases_need_neither_servers_nor_variables_of_connectors(write: Write) -> None:
    path = write(PIPELINE + GOOD)
    done = headrace("test", path)
    assert (done.exit_code, done.stdout) == (0, f"{path}\n  ✓ lines and rows\n1 case, 0 failed\n")


#: What is replaced in the good case, by what, and the lines that tell of it.
DIFFERENT = {
    "another value": (
        "half: 6.25", "half: 6.5",
        ["sink halves: 1 row missing, 1 row not expected", '  - {"id": 1, "half": "6.50', '  + {"id": 1, "half": "6.25',
         '      half: expected "6.50'],
    ),
    "a row that is missing": (
        "- {id: 3, half: 5}", "- {id: 3, half: 5}\n            - {id: 3, half: 5}",
        ["sink halves: 1 row missing", '  - {"id": 3, "half": "5.0'],
    ),
    "a row that is not expected": (
        "            - {id: 3, half: 5}\n", "", ["sink halves: 1 row not expected", '  + {"id": 3, "half": "5.0'],
    ),
    "a column that is left out is NULL": ("note: é, ", "", ["sink large:", "  - ", "  + ", '      note: expected null, found "é"']),
    "a sink that is not named gets none": (
        "          halves:\n            - {id: 3, half: 5}\n            - {id: 1, half: 6.25}\n", "",
        ["sink halves: 2 rows not expected (the case does not name 'halves')", "  + ", "  + "],
    ),
    "dead letters that are not named": (
        "        dead_letters:\n          - {origin: orders, reason: expected int64, line: '{\"id\": \"none\"}'}\n", "",
        ["1 dead letter, none expected", "  + orders: DecodeError: column 'id': expected int64"],
    ),
    "another number of dead letters": (
        "dead_letters:\n          - {origin: orders, reason: expected int64, line: '{\"id\": \"none\"}'}", "dead_letters: 2",
        ["1 dead letter, expected 2", "  + orders: "],
    ),
    "another reason": (
        "reason: expected int64", "reason: expected text",
        ["dead letters: 1 missing, 1 not expected", "  - ", "  + orders: "],
    ),
    "another line": ("'{\"id\": \"none\"}'", "none", ["dead letters: 1 missing", "  - ", "  + orders"]),
    "another variable": (
        "- name: lines and rows", "- name: lines and rows\n        variables: {LEAST: 11}",
        ["sink halves: 1 row missing", '  - {"id": 3', "sink large: 1 row missing", '  - {"id": 3'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_differences(write: Write, what: str) -> None:
    before, after, expected = DIFFERENT[what]
    assert before in GOOD
    path = write(PIPELINE + GOOD.replace(before, after, 1))
    done = headrace("test", path)
    assert done.exit_code == 1
    head, case, *lines, summary = done.stdout.splitlines()
    assert (head, summary) == (str(path), "1 case, 1 failed")
    assert case.startswith("  ✗ lines and rows (line ")
    assert len(lines) == len(expected)
    for line, begin in zip(lines, expected, strict=True):
        assert line.removeprefix("      ").startswith(begin)


#: What is replaced in the good case, by what, and the message.
WRONG = {
    "nothing that is expected": (
        GOOD[GOOD.index("        out:") :], "", "the case 'lines and rows' expects nothing [option 'out']",
    ),
    "an empty out": (
        GOOD[GOOD.index("        out:") :], "        out: {}\n", "the case 'lines and rows' expects nothing [option 'out']",
    ),
    "an unknown key": ("dead_letters:", "dead_leters:", "a case has no key 'dead_leters'"),
    "an unknown source": ("table:", "tabel:", "the pipeline has no source 'tabel'"),
    "an unknown sink": ("halves:", "halfs:", "the pipeline has no sink 'halfs'"),
    "an unknown column of a sink": ("half: 5", "hlf: 5", "sink 'halves' has no column 'hlf' [option 'hlf']"),
    "an unknown column of a source": ("id: 4", "di: 4", "source 'table' has no column 'di' [option 'di']"),
    "a value that a sink cannot get": ("half: 5", "half: five", "column 'half': "),
    "a value that a source cannot give": ("id: 4", "id: four", "column 'id': expected int64"),
    "lines for a source without a format": (
        "- {id: 3, amount: 10, at: 2026-01-01 01:00:00+01:00}\n            - {id: 4}", "- x",
        "source 'table' gives rows and no lines",
    ),
    "an unknown key of a dead letter": ("reason:", "raeson:", "a dead letter has no key 'raeson'"),
    "a text instead of dead letters": (
        "dead_letters:\n          - {origin: orders, reason: expected int64, line: '{\"id\": \"none\"}'}", "dead_letters: some",
        "expected a list of dead letters or their number, found a text",
    ),
    "no name": ("- name: lines and rows", "- variables: {}", "a case needs the key 'name'"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_cases(write: Write, what: str) -> None:
    before, after, expected = WRONG[what]
    assert before in GOOD
    path = write(PIPELINE + GOOD.replace(before, after, 1))
    done = headrace("test", path)
    assert done.exit_code == 2, done.output
    assert expected in done.stdout
    assert f"  ! {path}, line " in done.stdout


def test_a_name_comes_once(write: Write) -> None:
    with pytest.raises(PipelineError, match="two cases have the name 'lines and rows'"):
        run_cases(write(PIPELINE + GOOD + GOOD), {})


def test_columns_that_a_server_would_say(write: Write) -> None:
    text = PIPELINE + GOOD
    before, _, rest = text.partition("        table: t\n")
    path = write(before + "        table: t\n" + rest.partition("\n")[2])
    with pytest.raises(PipelineError, match="source 'table' asks its server for the columns, and a case has none"):
        run_cases(path, {})


def test_lint_checks_cases_too(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA", "k:9092")
    monkeypatch.setenv("MYSQL", "db")
    monkeypatch.setenv("OUT", "out")
    assert headrace("lint", write(PIPELINE + GOOD)).exit_code == 0
    done = headrace("lint", write(PIPELINE + GOOD.replace("halves:", "halfs:")))
    assert done.exit_code == 2
    assert "the pipeline has no sink 'halfs'" in done.stderr


def test_a_job_that_fails(write: Write) -> None:
    done = headrace("test", write(PIPELINE.replace("name: orders", "name: orders\n    bad_records: stop") + GOOD))
    assert done.exit_code == 1
    assert "the job failed: " in done.stdout


def test_a_folder(tmp_path: Path) -> None:
    for name, case in (("a.yaml", GOOD), ("below/b.yml", GOOD.replace("6.25", "6")), (".hidden/c.yaml", "wrong")):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text_of(PIPELINE + case))
    (tmp_path / "job.yaml").write_text("backend: light\n")
    (tmp_path / "rules.yaml").write_text("- id: x\n  expression: a > 1\n")
    done = headrace("test", tmp_path)
    assert done.exit_code == 1
    assert [line for line in done.stdout.splitlines() if line[0] not in " "] == [
        str(tmp_path / "a.yaml"), str(tmp_path / "below" / "b.yml"), "2 cases, 1 failed",
    ]  # fmt: skip
    (tmp_path / "wrong.yaml").write_text("steps: [\n")
    done = headrace("test", tmp_path)
    assert done.exit_code == 2
    assert "this is not YAML" in done.stdout
    assert done.stdout.splitlines()[-1] == "2 cases, 1 failed, 1 file wrong"


def test_nothing_to_test(write: Write, tmp_path: Path) -> None:
    path = write(PIPELINE.replace("    cases:\n", ""))
    for target in (path, tmp_path):
        done = headrace("test", target)
        assert done.exit_code == 2
        assert "so nothing was tested" in done.stderr
    assert headrace("test", tmp_path / "none.yaml").exit_code == 2


def test_changes_are_given_as_lines(write: Write) -> None:
    text = """
    name: changes
    sources:
      users: {connector: kafka, servers: k, topic: t, group: g, format: debezium-json, schema: {id: int64, name: string}, key: id}
    sinks:
      users: {connector: mysql, host: h, database: d, user: u, table: t, key: id}
    cases:
      - name: an update
        in:
          users:
            - '{"before": null, "after": {"id": 1, "name": "a"}, "op": "c"}'
            - '{"before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}, "op": "u"}'
            - '{"before": null, "after": {"id": 2, "name": "c"}, "op": "c"}'
            - '{"before": {"id": 2, "name": "c"}, "after": null, "op": "d"}'
        out:
          users: [{id: 1, name: b}]
    """
    assert [each.differences for each in run_cases(write(text), {})] == [()]
    rows = (
        text[: text.index("            - '")] + "            - {id: 1, name: a}\n" + text[text.index("        out:") :]
    )
    with pytest.raises(PipelineError, match="rows of the format debezium-json are changes"):
        run_cases(write(rows), {})


def test_a_case_begins_in_its_line(write: Write) -> None:
    path = write(PIPELINE + GOOD)
    (case,) = cases_of(PipelineFile.of(path, {}).root)
    assert path.read_text().splitlines()[case.line - 1].strip() == "- name: lines and rows"
