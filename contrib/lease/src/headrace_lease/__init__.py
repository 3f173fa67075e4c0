"""Leases with fencing tokens: only one of several processes does a piece of work.

leases = Leases.at("mysql+pymysql://user:password@db/headrace")
lease = leases.acquire("refresh/products", holder="host-1", duration=timedelta(seconds=15))
if lease is not None:
    with lease.store.engine.begin() as transaction:
        lease.guard(transaction)      # raises LeaseLostError if somebody else has the lease now
        transaction.execute(...)
"""

from __future__ import annotations

from headrace_lease.errors import LeaseLostError
from headrace_lease.idle_transactions import limit_idle_transactions
from headrace_lease.keeper import LeaseKeeper
from headrace_lease.leases import Lease, Leases
from headrace_lease.signs_of_life import SignsOfLife
from headrace_lease.sql_store import SqlLeaseStore
from headrace_lease.store import LeaseRecord, LeaseStore

__version__ = "0.1.0"

__all__ = [
    "Lease",
    "LeaseKeeper",
    "LeaseLostError",
    "LeaseRecord",
    "LeaseStore",
    "Leases",
    "SignsOfLife",
    "SqlLeaseStore",
    "limit_idle_transactions",
]
