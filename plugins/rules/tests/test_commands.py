"""``headrace rules check | explain | profile``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from headrace_console.app import app
from typer.testing import CliRunner, Result

RULES = """
- id: shadow
  expression: cmdline LIKE '%/etc/shadow%' AND user <> 'root' AND (exit_code IS NULL OR exit_code = 0)
  severity: high
  labels: [credentials]
- id: bash
  expression: process = 'bash'
- id: port
  expression: CAST(port AS int) > 1
"""
MESSAGE = {"cmdline": "cat /etc/shadow", "user": "bob", "process": "cat", "exit_code": None, "port": "x"}
COLUMNS = "cmdline: string, user: string, process: string, exit_code: int64, port: string"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "message.json").write_text(json.dumps(MESSAGE, indent=2))
    many = [{**MESSAGE, "user": "root" if n % 3 else "bob", "port": "7", "process": f"p{n % 50}"} for n in range(300)]
    (tmp_path / "many.ndjson").write_text("\n".join([*map(json.dumps, many), "{broken"]))
    (tmp_path / "job.py").write_text(f"""
import headrace as hr
columns = {dict(part.split(": ") for part in COLUMNS.split(", "))!r}
job = (
    hr.stream("test", "rules").from_file("{tmp_path}/*.none", format="json", schema=columns)
    .rules("{tmp_path}/rules.yaml").to_file("{tmp_path}/out", format="json")
)
""")
    return tmp_path


def headrace(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["rules", *map(str, arguments)])


def test_check(place: Path) -> None:
    rules = place / "rules.yaml"
    assert "3 rules are right (syntax only" in headrace("check", rules).stdout
    for arguments in (["--columns", COLUMNS], ["--job", place / "job.py"]):
        found = headrace("check", rules, *arguments)
        assert found.exit_code == 0, found.output
        assert "3 rules are right (for the columns cmdline, user, process" in found.stdout
    wrong = headrace(
        "check", rules, "--columns", "cmdline: string, usr: string, tags: array<struct<a: string, b: int>>"
    )
    assert wrong.exit_code == 2
    assert "3 rules are wrong (of 3)" in wrong.stderr
    assert "did you mean 'usr'" in wrong.stderr
    rules.write_text("- {id: a, expression: 'x ='}\n- {id: b, expression: 'x = 1'}")
    found = headrace("check", rules)
    assert found.exit_code == 2
    assert "rule 'a'" in found.stderr


@pytest.mark.parametrize("from_job", [False, True])
def test_explain(from_job: bool, place: Path) -> None:
    rules: list[str | Path] = ["--rules", place / "rules.yaml", "--columns", COLUMNS]
    origin = ["--job", place / "job.py"] if from_job else rules
    found = headrace("explain", "shadow", "--on", place / "message.json", *origin)
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert lines[:6] == [
        "rule shadow  severity high  labels credentials",
        "  true   cmdline LIKE '%/etc/shadow%'",
        "  true   user <> 'root'",
        "  true   exit_code IS NULL OR exit_code = 0",
        "  matches",
        "  trigger: cmdline contains '/etc/shadow' (met)",
    ]
    assert lines[6].startswith("  cost: ")
    found = headrace("explain", "bash", "--on", place / "message.json", *origin)
    assert "  does not match\n  trigger: process is 'bash' (not met: the rule is not evaluated)" in found.stdout
    found = headrace("explain", "port", "--on", place / "message.json", *origin)
    assert "fails" in found.stdout
    assert "CAST('x' AS int64) is impossible" in found.stdout


def test_explain_what_is_not_there(place: Path) -> None:
    origin: list[str | Path] = ["--rules", place / "rules.yaml"]
    found = headrace("explain", "shado", "--on", place / "message.json", *origin)
    assert (found.exit_code, "did you mean 'shadow'?" in found.stderr) == (2, True)
    assert "cannot read" in headrace("explain", "shadow", "--on", place / "none.json", *origin).stderr
    assert "no rules are given" in headrace("explain", "shadow", "--on", place / "message.json").stderr
    (place / "message.json").write_text('{"cmdline": 5')
    assert "holds no JSON object" in headrace("explain", "shadow", "--on", place / "message.json", *origin).stderr


def test_profile(place: Path) -> None:
    found = headrace("profile", "--on", place / "many.ndjson", "--rules", place / "rules.yaml", "--columns", COLUMNS)
    assert found.exit_code == 0, found.output
    assert "3 rules on 300 messages (1 could not be decoded)" in found.stdout
    table = {line.split("  ")[-2]: line.split() for line in found.stdout.splitlines() if line.endswith("]")}
    assert table["shadow"][1:4] == ["every", "row", "100"]
    assert table["port"][1:4] == ["every", "row", "300"]
    assert table["bash"][1:3] == ["0", "0"]


def test_profile_decodes_what_the_rules_read(place: Path) -> None:
    """As the job does: a number where a text is declared is no matter of rules that do not read it."""
    on, rules = place / "some.ndjson", place / "rules.yaml"
    on.write_text('{"process": "bash", "user": 5}\n{"process": 5, "user": "ann"}\n')
    rules.write_text("- {id: bash, expression: process = 'bash'}")
    found = headrace("profile", "--on", on, "--rules", rules, "--columns", COLUMNS)
    assert "1 rules on 1 messages (1 could not be decoded)" in found.stdout, found.output


def test_profile_tells_what_a_scan_before_parsing_would_save(place: Path) -> None:
    rules, on = place / "rules.yaml", place / "some.ndjson"
    messages = ["nothing here"] * 90 + ["alpha"] * 6 + ["alpha beta"] * 2 + ["caf\u00e9", "\u0444"] * 3
    on.write_text("".join(json.dumps({"process": text, "exit_code": 4711}) + "\n" for text in messages))
    rules.write_text(
        "- {id: a, expression: process LIKE '%alpha%'}\n- {id: b, expression: process LIKE '%beta%' OR process = 'caf\u00e9'}\n"
        "- {id: n, expression: exit_code = 99999}"
    )
    command = ("profile", "--on", on, "--rules", rules, "--columns", "process: string, exit_code: int64")
    found = headrace(*command)
    assert found.exit_code == 0, found.output
    assert "raw_scan=True would decode 11 of 104 messages, 3 of them for an escape" in found.stdout
    assert "most messages are decoded for: a 8, b 2" in found.stdout
    rules.write_text("- {id: a, expression: exit_code > 3}")
    assert "raw_scan=True would save nothing" in headrace(*command).stdout


def test_profile_leaves_out_what_is_wrong(place: Path) -> None:
    rules, on = place / "rules.yaml", place / "many.ndjson"
    rules.write_text(RULES + "- {id: odd, expression: processs = 'x'}\n- {id: high, expression: exit_code > 3}")
    found = headrace("profile", "--on", on, "--rules", rules, "--columns", COLUMNS)
    assert found.exit_code == 0, found.output
    assert "left out: rule 'odd'" in found.stderr
    assert "did you mean 'process'?" in found.stderr
    assert "4 rules on 300 messages" in found.stdout
    rules.write_text("- {id: odd, expression: processs = 'x'}")
    found = headrace("profile", "--on", on, "--rules", rules, "--columns", COLUMNS)
    assert (found.exit_code, "1 rule is wrong (of 1)" in found.stderr) == (2, True)


def test_explain_tells_which_of_many_messages_it_is_about(place: Path) -> None:
    rules: list[str | Path] = ["--rules", place / "rules.yaml", "--columns", COLUMNS]
    (place / "two.ndjson").write_text(f"{json.dumps({**MESSAGE, 'process': 'bash'})}\n{json.dumps(MESSAGE)}\n")
    found = headrace("explain", "bash", "--on", place / "two.ndjson", *rules)
    assert "has 2 messages: only the first is explained" in found.stderr.replace("\n", " ")
    assert "  true   process = 'bash'\n  matches" in found.stdout


def test_the_command_is_offered(place: Path) -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert "Check rules, explain a rule on a message" in shown
    assert CliRunner().invoke(app, ["rule"]).exit_code == 2
