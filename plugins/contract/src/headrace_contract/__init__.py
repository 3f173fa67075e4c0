"""The contract suite: named checks that plug-in authors run on their own plug-ins, with pytest.

Subclass the contract of what you wrote, give it a few methods, and every check becomes a test:

    from headrace_contract import SinkContract

    class TestMySink(SinkContract):
        def make_sink(self): ...
        def read_rows(self): ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.foundation.lazy_names import lazy_names

__version__ = "0.1.0"

_MODULES = {
    "headrace_contract.codec": ("CodecContract",),
    "headrace_contract.contract": ("Contract", "ContractViolation", "checks_of", "optional_hook"),
    "headrace_contract.function": ("AggregateFunctionContract", "FunctionContract", "TableFunctionContract"),
    "headrace_contract.group_source": ("GroupSourceContract",),
    "headrace_contract.keyed_state_store": ("KeyedStateStoreContract",),
    "headrace_contract.memory_topics": ("MemoryBroker", "MemoryTopicSource", "MemoryTopics"),
    "headrace_contract.operator": ("OperatorContract",),
    "headrace_contract.readable_state_store": ("ReadableStateStoreContract",),
    "headrace_contract.sink": ("SinkContract",),
    "headrace_contract.source": ("SourceContract",),
    "headrace_contract.state_store": ("StateStoreContract", "StorePerShuffle"),
    "headrace_contract.stateful_operator": ("StatefulOperatorContract",),
    "headrace_contract.tasks": ("Moment",),
    "headrace_contract.topics": ("TopicsContract",),
    "headrace_contract.values": ("ALL_TYPES", "BASIC_TYPES"),
}
# Pytest imports this package in every run where it is installed, so the import must be cheap.
__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)

if TYPE_CHECKING:
    from headrace_contract.codec import CodecContract as CodecContract
    from headrace_contract.contract import Contract as Contract
    from headrace_contract.contract import ContractViolation as ContractViolation
    from headrace_contract.contract import checks_of as checks_of
    from headrace_contract.contract import optional_hook as optional_hook
    from headrace_contract.function import AggregateFunctionContract as AggregateFunctionContract
    from headrace_contract.function import FunctionContract as FunctionContract
    from headrace_contract.function import TableFunctionContract as TableFunctionContract
    from headrace_contract.group_source import GroupSourceContract as GroupSourceContract
    from headrace_contract.keyed_state_store import KeyedStateStoreContract as KeyedStateStoreContract
    from headrace_contract.memory_topics import MemoryBroker as MemoryBroker
    from headrace_contract.memory_topics import MemoryTopics as MemoryTopics
    from headrace_contract.memory_topics import MemoryTopicSource as MemoryTopicSource
    from headrace_contract.operator import OperatorContract as OperatorContract
    from headrace_contract.readable_state_store import ReadableStateStoreContract as ReadableStateStoreContract
    from headrace_contract.sink import SinkContract as SinkContract
    from headrace_contract.source import SourceContract as SourceContract
    from headrace_contract.state_store import StateStoreContract as StateStoreContract
    from headrace_contract.state_store import StorePerShuffle as StorePerShuffle
    from headrace_contract.stateful_operator import StatefulOperatorContract as StatefulOperatorContract
    from headrace_contract.tasks import Moment as Moment
    from headrace_contract.topics import TopicsContract as TopicsContract
    from headrace_contract.values import ALL_TYPES as ALL_TYPES
    from headrace_contract.values import BASIC_TYPES as BASIC_TYPES
