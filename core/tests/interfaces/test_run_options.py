"""Options of a run of which each backend has its own default."""

import pytest
from headrace.interfaces.backend import RunOptions


@pytest.mark.parametrize(("given", "usual", "holds"), [(None, 20_000, 20_000), (None, 50_000, 50_000), (7, 50_000, 7)])
def test_a_batch_has_as_many_records_as_the_run_says_or_else_the_backend(
    given: int | None, usual: int, holds: int
) -> None:
    assert RunOptions(max_batch_records=given).batch_records(usual) == holds
