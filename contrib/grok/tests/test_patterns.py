"""Expressions: what they mean, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import headrace as hr
import polars as pl
import pytest
from headrace_grok.library import definitions_of
from headrace_grok.matching import Matcher, MatchOptions
from headrace_grok.programs import compiled, fields_of, schema_of


def fields(
    pattern: str, line: str, definitions: dict[str, str] | str | None = None, *, keep_empty_captures: bool = False
) -> object:
    """Return the fields of a line that have something; None if the pattern does not fit."""
    programs = compiled([pattern], definitions_of(definitions))
    matched = Matcher(programs, MatchOptions(keep_empty_captures=keep_empty_captures)).match(pl.Series([line]))
    if matched.bad_rows:
        return None
    row = matched.frame.row(0, named=True) if matched.frame.width else {}
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize(
    ("pattern", "line", "wanted"),
    [
        ("%{WORD:[http][method]} %{INT:n:long}", "GET 7", {"http.method": "GET", "n": 7}),
        ("(?<id>[0-9A-F]{4}) (?P<rest>.*)", "queue 00FF x", {"id": "00FF", "rest": "x"}),
        ("%{NUMBER:a:double} %{WORD:b:bool}", "-.5 TRUE", {"a": -0.5, "b": True}),
        ("%{INT:n:int}", "+12", {"n": 12}),
        ("(?:from %{IP:at}|at %{WORD:at})", "at home", {"at": "home"}),  # a field in two branches
        ("%{WORD:a} %{WORD:a}", "one two", {"a": "one"}),  # the first one counts
        ("a(?i)B|c$", "xaC", {}),  # flags hold to the end of the group, over the alternation too
        ("a(?i)B|c$", "Ac", None),
        ("a.b", "a\nb", {}),  # . takes newlines, as in Logstash
        ("(?-m)a.b", "a\nb", None),
        ("^b$", "a\nb\nc", {}),
        (r"\Ab", "a\nb", None),
        (r"[[:digit:]x\-]+\h", "1-xF", {}),
        (r"[^\W\d]", "12_", {}),
        (r"[\w]", "é", None),  # ASCII alone
        (r"\A[[[:alpha:]]_[é+]]+\z", "aé_+", {}),
        ("%{INT:[a][n?]}", "1", {"a.n": "1"}),
        (r"\p{Lu}\x41\x{e9}\u00e9", "ÉAéé", {}),
        (r"(?<q>['\"]).*?\k<q>$", "say 'x'", {"q": "'"}),
        (r"\%\{INT\} {x} a{,2}b", "%{INT} {x} aab", {}),
        (r"(?#note)(?>a+)b", "aab", {}),
        (r"a++a", "aaa", None),
        (r"x\Z", "x\n", {}),
        (r"x\z", "x\n", None),
        ("%{GREEDYDATA:all}", "", {}),  # an empty text is NULL
    ],
)  # fmt: skip
def test_what_expressions_mean(pattern: str, line: str, wanted: object) -> None:
    assert fields(pattern, line) == wanted


def test_empty_captures_can_be_kept() -> None:
    assert fields("<%{DATA:inner}>", "<>", keep_empty_captures=True) == {"inner": ""}


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("%{IPX:a}", "unknown pattern 'IPX'.*did you mean 'IP"),
        ("%{INT:a:itn}", "unknown type 'itn'.*did you mean 'int'"),
        ("%{INT:a b}", "unusable field name 'a b'"),
        ("%{INT", r"a reference has the form %\{NAME\}"),
        ("%{A}", r"%\{A\} refers to itself: A → B → A, at character 1 of %\{B\}"),
        ("(a", "a parenthesis is not closed, at character 3"),
        ("a)", "a parenthesis is closed that was not opened, at character 2"),
        ("[a", "a class of characters is not closed"),
        ("[b-a]", "from a lower to a higher one"),
        ("[a[b]", "a class of characters is not closed"),
        ("[a&&b]", "intersections of classes"),
        (r"[\P{L}]", "a negated property within a class"),
        ("*a", "nothing stands before a repetition"),
        ("a{3,2}", "from a smaller to a larger number"),
        ("a{1,5000}", "up to 1,000"),
        ("(?x)a", "this kind of group is not supported"),
        (r"(a)\1", r"unknown escape \\1.*captures are named"),
        (r"\k<b>", "the back reference 'b' refers to a group that comes later"),
        (r"(?<=a*)b\q", r"unknown escape \\q"),
        ("a\\", "a backslash ends the pattern"),
        ("(" * 200 + ")" * 200, "nested deeper than 100 levels"),
        ("a" + "*" * 5000, "repetitions are nested deeper than 8 levels"),
        # Python's matcher took 18 s and 4.7 GB to compile this.
        ("{ {" + "+" * 57 + "D,", "repetitions are nested deeper than 8 levels"),
        ("(?:" * 9 + "a" + "){2,3}" * 9, "repetitions are nested deeper than 8 levels"),
        ("(?i)" * 5000 + "a", "nested too deeply"),
        ("[" * 5000 + "a" + "]" * 5000, "nested too deeply"),
        ("%{LAUGH}", "the pattern is too large"),
    ],
)
def test_wrong_expressions_are_refused_with_the_place(pattern: str, said: str) -> None:
    laughs = {f"L{n}": f"%{{L{n - 1}}}" * 10 for n in range(1, 9)}
    own = {"A": "%{B}", "B": "%{A}", "L0": "ha", **laughs, "LAUGH": "%{L8}"}
    with pytest.raises(hr.OptionError) as caught:
        compiled([pattern], definitions_of(own))
    import re

    assert re.search(said, str(caught.value), re.DOTALL)


def test_a_field_has_one_type() -> None:
    with pytest.raises(hr.OptionError, match=r"field 'n' is string in '%\{INT:n\}' and int64 in"):
        compiled(["%{INT:n}", "x %{INT:n:int}"], definitions_of())
    assert fields_of(compiled(["%{NUM:n}"], definitions_of({"NUM": "%{INT:n:int}"}))) == {"n": "int64"}
    programs = compiled(["%{INT:__hr_offset}"], definitions_of())
    with pytest.raises(hr.OptionError, match="reserved"):
        schema_of(programs)


def test_patterns_of_files_and_of_the_call(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("# mine\nINT [0-9]{3}\n\nID  %{INT}-%{LETTER:letter}\n")
    (tmp_path / "second").write_text("LETTER [a-z]\n")
    found = definitions_of({"LETTER": "[A-Z]"}, [str(tmp_path)])
    (program,) = compiled(["%{ID:id}"], found)
    matched = Matcher([program]).match(pl.Series(["123-X", "123-x"]))
    assert matched.frame.to_dicts() == [{"id": "123-X", "letter": "X"}]
    assert fields("%{ID:id}", "7-x", "ID [0-9]-x") == {"id": "7-x"}
    # As in Logstash, a blank at the end is of the pattern; and not each character that ends a line of Unicode ends one here.
    (tmp_path / "blanks").write_bytes("KEY [a-z]+: \r\nPAGE p\x0c\u2028q\r\n".encode())
    found = definitions_of(files=[str(tmp_path / "blanks")])
    assert (found["KEY"].text, found["PAGE"].text) == ("[a-z]+: ", "p\x0c\u2028q")
    with pytest.raises(
        hr.OptionError, match=r"line 1 of pattern_definitions is not a pattern.*option 'pattern_definitions'"
    ):
        definitions_of("ONLYNAME")
    (tmp_path / "bad").write_text("ONLYNAME\n")
    with pytest.raises(hr.OptionError, match=r"line 1 of .*bad is not a pattern"):
        definitions_of(files=[str(tmp_path / "bad")])
    with pytest.raises(hr.OptionError, match="cannot read patterns"):
        definitions_of(files=[str(tmp_path / "nothing")])
    with pytest.raises(hr.OptionError, match="expected 'legacy' or 'ecs'"):
        definitions_of(names="ocsf")
