"""Which servers tests may do without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.errors import MissingDownloadError, MissingProgramError, ServerStartError, TestServerError
from tests.servers.fixtures import skipped_where_impossible

ABSENT = [MissingProgramError("java is not installed"), MissingDownloadError("Maven could not fetch the jars")]
BROKEN = [ServerStartError("kafka", Path("none"), "it ended"), TestServerError("no free ports")]


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.param is None:
        monkeypatch.delenv("HEADRACE_TEST_SERVERS", raising=False)
    else:
        monkeypatch.setenv("HEADRACE_TEST_SERVERS", request.param)


@pytest.mark.parametrize("mode", ["auto"], indirect=True)
@pytest.mark.parametrize("error", ABSENT, ids=lambda error: type(error).__name__)
def test_what_the_machine_cannot_provide_is_skipped_with_the_reason(mode: None, error: TestServerError) -> None:
    with pytest.raises(pytest.skip.Exception, match=str(error)), skipped_where_impossible():
        raise error


@pytest.mark.parametrize("mode", [None, "", "required"], indirect=True)
@pytest.mark.parametrize("error", ABSENT, ids=lambda error: type(error).__name__)
def test_servers_that_are_required_are_not_skipped(mode: None, error: TestServerError) -> None:
    with pytest.raises(type(error)), skipped_where_impossible():
        raise error


@pytest.mark.parametrize("mode", [None, "auto", "required"], indirect=True)
@pytest.mark.parametrize("error", BROKEN, ids=lambda error: type(error).__name__)
def test_a_server_that_is_there_and_does_not_start_is_an_error(mode: None, error: TestServerError) -> None:
    with pytest.raises(type(error)), skipped_where_impossible():
        raise error


@pytest.mark.parametrize("mode", ["yes"], indirect=True)
def test_an_unknown_mode_is_an_error(mode: None) -> None:
    with pytest.raises(TestServerError, match="it may be auto or required"), skipped_where_impossible():
        raise MissingProgramError("java is not installed")
