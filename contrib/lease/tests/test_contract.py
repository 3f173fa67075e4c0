"""The contract fails stores that are wrong: each is right but for one error that people make."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from headrace_contract import ContractViolation
from headrace_lease import LeaseRecord, SqlLeaseStore
from lease_world import LeaseDatabase
from test_sql_store import SqlContract


class SameHolderAgain(SqlLeaseStore):
    def take(self, name: str, holder: str, duration: timedelta) -> int | None:
        record = self.read(name)
        return record.token if record and record.holder == holder else super().take(name, holder, duration)


class TokenBeginsAnew(SqlLeaseStore):
    def give_back(self, name: str, token: int) -> bool:
        held = super().give_back(name, token)
        with self.engine.begin() as transaction:
            transaction.execute(sa.text("DELETE FROM headrace_leases WHERE expires_at_ms = 0"))
        return held


class ExtendsWhatExpired(SqlLeaseStore):
    def extend(self, name: str, token: int, duration: timedelta) -> bool:
        record = self.read(name)
        if record and record.token == token and record.holder is None:
            return True
        return super().extend(name, token, duration)


class GivesBackOfOthers(SqlLeaseStore):
    def give_back(self, name: str, token: int) -> bool:
        record = self.read(name)
        return super().give_back(name, record.token if record else token)


class IgnoresCase(SqlLeaseStore):
    def take(self, name: str, holder: str, duration: timedelta) -> int | None:
        return super().take(name.lower(), holder, duration)

    def read(self, name: str) -> LeaseRecord | None:
        return super().read(name.lower())


class NeverExpires(SqlLeaseStore):
    def take(self, name: str, holder: str, duration: timedelta) -> int | None:
        return super().take(name, holder, 1000 * duration)


class GuardsByLookingOnly(SqlLeaseStore):
    def guard(self, name: str, token: int, transaction: Any) -> bool:
        record = self.read(name)
        return record is not None and record.token == token and record.holder is not None


WRONG = {
    SameHolderAgain: "test_a_held_lease_is_given_to_nobody",
    TokenBeginsAnew: "test_a_token_only_grows",
    ExtendsWhatExpired: "test_an_expired_lease_is_not_extended",
    GivesBackOfOthers: "test_an_old_token_changes_nothing",
    IgnoresCase: "test_names_are_kept_apart",
    NeverExpires: "test_an_expired_lease_is_given_to_the_next",
    GuardsByLookingOnly: "test_nobody_takes_a_lease_under_a_guard",
}


@pytest.mark.parametrize("store", WRONG, ids=lambda store: store.__name__)
def test_a_wrong_store_fails(store: type[SqlLeaseStore], sqlite_leases: LeaseDatabase, tmp_path: Path) -> None:
    class Contract(SqlContract):
        def make_store(self) -> SqlLeaseStore:
            return store(sqlite_leases.new_engine(), clock=sqlite_leases.store()._now)

    contract = Contract()
    contract.database = sqlite_leases
    contract.begin(tmp_path)
    with pytest.raises(ContractViolation, match="mend:"):
        getattr(contract, WRONG[store])()
