"""Every input that is kept, and every seed, through its target: what was a fault once is none any more."""

from __future__ import annotations

import pytest

from tests.fuzz.guided.corpus import PLACE, load, save
from tests.fuzz.guided.minimizing import minimized
from tests.fuzz.guided.target import Target
from tests.fuzz.guided.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_is_a_fault(name: str) -> None:
    target = TARGETS[name]
    taken = [target.check(data) for data in [*target.seeds, *load(name)]]
    assert any(taken), "a target that refuses all of its seeds tries nothing"


def test_each_corpus_has_a_target() -> None:
    assert {path.stem for path in PLACE.glob("*.txt")} <= set(TARGETS)


def test_a_fault_is_told() -> None:
    def broken(data: bytes) -> None:
        if data == b"x":
            raise KeyError("x")

    target = Target("broken", broken, [b"a"])
    assert target.check(b"a")
    with pytest.raises(KeyError):
        target.check(b"x")


def test_inputs_that_reach_nothing_new_are_not_kept() -> None:
    target = TARGETS["rules-sql"]
    longer = b"-- id: x\n-- severity: nothing\na = 1;\n"
    assert minimized(target, [longer, longer + b"\n\n", target.seeds[0]]) == [longer]


def test_a_corpus_is_kept_shortest_first_and_once(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.guided.corpus.PLACE", tmp_path)
    save("some", [b"long", b"\xff", b"long"])
    assert load("some") == [b"\xff", b"long"]
