"""The contract of the group source."""

from __future__ import annotations

from headrace_contract import GroupSourceContract

from contract_samples.group_sources import GroupLogSource
from contract_samples.source_contracts import LogHarness


class GroupLogContract(LogHarness, GroupSourceContract):
    """The group source, in the world of the others."""

    kind: type[GroupLogSource] = GroupLogSource
