"""The ways of running do what they say: else they would compare nothing."""

from __future__ import annotations

import pytest
from headrace.foundation import faults
from headrace.interfaces.registry import default_registry

from tests.differential import styles
from tests.differential.comparing import row_of
from tests.differential.kinds import INT
from tests.differential.styles import DRESSINGS, PLACES, Style, dressed, not_optimized, run_styled
from tests.differential.tables import Table, TableColumn

TABLE = Table("t1", (TableColumn("k", INT), TableColumn("v", INT)), tuple((at % 3, at) for at in range(12)), (0,) * 12)
TEXT = "SELECT k, SUM(v) AS total FROM t1 GROUP BY k"
ROWS = {row_of(row): 1 for row in ((0, 18), (1, 22), (2, 26))}


@pytest.mark.parametrize("place", PLACES)
def test_a_run_is_broken_off_and_goes_on(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken: list[str] = []

    class Break(styles._Break):
        def passed(self, place: str) -> None:
            try:
                super().passed(place)
            except styles.Broken:
                broken.append(place)
                raise

    monkeypatch.setattr(styles, "_Break", Break)
    found = run_styled([TABLE], TEXT, Style(max_batch_records=2, breaks=(("kill", place, 2), ("kill", place, 1))))
    assert broken == [place, place]
    assert found.rows == ROWS
    assert not found.faults
    assert faults._faults is None


def test_a_run_is_stopped_and_goes_on() -> None:
    assert run_styled([TABLE], TEXT, Style(max_batch_records=2, breaks=(("stop", 3), ("stop", 6)))).rows == ROWS


@pytest.mark.parametrize("dressing", DRESSINGS)
def test_tables_in_other_clothes_are_the_same(dressing: str) -> None:
    worn, views = dressed([TABLE], dressing)
    assert (worn[0].columns != TABLE.columns) == (dressing not in ("plain", "view"))
    assert bool(views) == (dressing != "plain")
    assert run_styled([TABLE], TEXT, Style(dressing=dressing)).rows == ROWS


def test_without_the_optimizer_plans_are_left_as_they_are() -> None:
    def functions() -> list[object]:
        return [each.function for each in default_registry().load_all().headrace_optimize.get_hookimpls()]

    before = functions()
    with not_optimized():
        assert styles._as_it_is in functions()
    assert functions() == before
    assert run_styled([TABLE], TEXT, Style(optimized=False)).rows == ROWS
