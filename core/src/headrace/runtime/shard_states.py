"""The state of shards outside of a running job: built from its versions, and divided again when their number changes.

Only the operators with state are opened for that; nothing of the job runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headrace.foundation.checksums import sealed, unsealed
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import PartedOperator, StatefulOperator, StatefulSpec
from headrace.interfaces.state_definition import definitions_from_json, definitions_to_json
from headrace.interfaces.state_parts import unpack_ranges
from headrace.plan.graph import OperatorNode, Plan, ShuffleNode, input_schema
from headrace.plan.state_check import StateFit
from headrace.runtime.shard import FORMAT_VERSION, FORMAT_VERSION_IN_PARTS

#: (queue, source, side, last position, watermark, idle): see ``Shard``.
Upstream = list[Any]


class StageStates:
    """The states of all shards behind one shuffle of a plan. Pure but for the operators that it opens and closes."""

    def __init__(self, plan: Plan, shuffle_id: str) -> None:
        node = plan.nodes[shuffle_id]
        assert isinstance(node, ShuffleNode)
        self._plan = plan
        self._shuffle = shuffle_id
        self._keys = tuple(node.keys)
        self._specs = {
            name: (each.spec, input_schema(each.input))
            for name, each in plan.stage(node).items()
            if isinstance(each, OperatorNode) and isinstance(each.spec, StatefulSpec)
        }

    def whole(self, versions: Iterable[bytes]) -> bytes:
        """Return one snapshot that says what versions of a shard's state (a snapshot, then deltas) say together.

        Raises CheckpointError when one is damaged, of a newer version or of another job.
        """
        header: dict[str, Any] = {}
        fit = StateFit.of(self._plan, {name: self._plan.nodes[name] for name in self._specs})
        operators = {name: self._open(name) for name in self._specs}
        try:
            for version in versions:
                if not version:
                    continue
                header = self.unpacked(version)
                fit.begin_version(header.get("defined"))
                for name, content in header["operators"].items():
                    self._apply(operators, fit, name, content, header)
            if not header:
                raise CheckpointError(f"no state is stored of one shard of {self._shuffle!r}")
            fit.end(operators)
            made = {name: operator.snapshot() for name, operator in operators.items()}
        finally:
            for operator in operators.values():
                operator.close()
        kept = {name: each for name, each in header.items() if name not in ("parts", "bytes", "rows")}
        now = {"format": FORMAT_VERSION, "whole": True, "operators": made, "defined": fit.header(whole=True)}
        return sealed(msgspec.msgpack.encode({**kept, **now}))

    def _apply(
        self,
        operators: Mapping[str, StatefulOperator],
        fit: StateFit,
        name: str,
        content: bytes,
        version: Mapping[str, Any],
    ) -> None:
        operator = operators.get(name)
        if operator is None:
            raise CheckpointError(
                f"the stored state belongs to an operator {name!r}, which the job does not have",
                hint="the job has changed since then: start it as it was before",
            )
        if version["format"] == FORMAT_VERSION_IN_PARTS:
            assert isinstance(operator, PartedOperator)
            ranges = unpack_ranges(version)
            parts = [fit.brought_over(name, each[name], part=True) for each in ranges if name in each]
            operator.apply_parts(fit.brought_over(name, content), parts)
        elif content:
            operator.apply(fit.brought_over(name, content))

    def unpacked(self, state: bytes) -> dict[str, Any]:
        """Return a version of a shard's state as a map. Raises CheckpointError."""
        try:
            stored: dict[str, Any] = msgspec.msgpack.decode(
                unsealed(state, f"the state of a shard of {self._shuffle!r}")
            )
            version = int(stored["format"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the state of a shard of {self._shuffle!r} is damaged: {error}") from error
        if version > FORMAT_VERSION_IN_PARTS:
            raise CheckpointError(
                f"the state of a shard of {self._shuffle!r} was written by a newer version of headrace (format {version})",
                hint="run the job with that version",
            )
        return stored

    def divided(
        self, states: Iterable[bytes], count: int, *, upstream: Mapping[str, int], dropped: Collection[str] = ()
    ) -> Iterator[bytes]:
        """Yield the states of ``count`` new shards, made from those of all old shards; each is one snapshot.

        ``upstream``: how many shards other shuffles have now whose numbers have changed. ``dropped``: operators that are to begin
        with nothing. Raises CheckpointError when an operator cannot divide its state, or shards have different watermarks.
        """
        before = [self.unpacked(state) for state in states]
        for each in before:
            each["operators"] = {name: state for name, state in each["operators"].items() if name not in dropped}
            self._check_known(each["operators"])
            if each.get("defined") is not None and dropped:
                each["defined"] = _without(each["defined"], dropped)
        same = len(before) == count
        if not same:
            header = {**before[0], **self._merged(before)}
        for number in range(count):
            if same:
                header, operators = before[number], before[number]["operators"]
            else:
                operators = self._share(before, number, count)
            upstreams = _with_shards(header["upstreams"], upstream)
            yield sealed(msgspec.msgpack.encode({**header, "upstreams": upstreams, "operators": operators}))

    def _check_known(self, operators: Collection[str]) -> None:
        unknown = sorted(set(operators) - set(self._specs))
        if unknown:
            raise CheckpointError(
                f"the stored state belongs to an operator {unknown[0]!r}, which the job does not have",
                hint=f"start the job as it was before, or without that state: drop_state={unknown[0]!r}",
            )

    def _share(self, before: Sequence[Mapping[str, Any]], number: int, count: int) -> dict[str, bytes]:
        names = dict.fromkeys(name for each in before for name in each["operators"])
        if not any(self._keys):  # all rows are in the first shard, whatever their number
            return dict(before[0]["operators"]) if number == 0 else {}
        share, made = KeyShare(number, count, self._keys), {}
        for name in names:
            states = [each["operators"][name] for each in before if each["operators"].get(name)]
            operator = self._open(name)
            try:
                made[name] = operator.share_of(states, share) if states else b""
            except CheckpointError as error:
                error.plugin = error.plugin or name
                error.job = error.job or self._plan.job_name
                raise
            finally:
                operator.close()
        return made

    def _merged(self, before: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what all shards know together of time and of the queues before them. Raises CheckpointError."""
        times = {int(each["watermark_us"]) for each in before}
        if len(times) > 1 and any(self._keys):
            raise CheckpointError(
                f"the shards of {self._shuffle!r} have different watermarks: {min(times)} to {max(times)} microseconds",
                job=self._plan.job_name,
                hint="continue with the previous number of shards until newer rows have been processed, and take the savepoint then",
            )
        known: dict[tuple[str, str, int], Upstream] = {}
        for each in before:
            for name, source, side, last, watermark_us, idle in each["upstreams"]:
                at = known.get((name, source, side))
                if at is None:
                    known[name, source, side] = [name, source, side, last, watermark_us, idle]
                    continue
                at[3] = max((one for one in (at[3], last) if one is not None), default=None)
                at[4] = max(at[4], watermark_us)
                at[5] = at[5] and idle
        return {"whole": True, "watermark_us": max(times), "upstreams": list(known.values())}

    def _open(self, name: str) -> StatefulOperator:
        spec, schema = self._specs[name]
        operator = spec.open(schema)
        assert isinstance(operator, StatefulOperator)
        return operator


def _without(defined: Mapping[str, Any], dropped: Collection[str]) -> dict[str, Any]:
    """Return the definitions of a version without those of some operators."""
    stored = definitions_from_json(defined)
    kept = {name: each for name, each in stored.items() if name not in dropped}
    return {**definitions_to_json(kept), "digest": f"{defined['digest']}-{len(kept)}-of-{len(stored)}"}


def _with_shards(upstreams: Sequence[Upstream], counts: Mapping[str, int]) -> list[Upstream]:
    """Return upstream queues with the shards of shuffles whose numbers have changed as they are now.

    Their rows are numbered above all that came before, so that nothing is to be remembered of the last ones.
    """
    kept = [each for each in upstreams if each[1] not in counts]
    for source, count in counts.items():
        sides = {each[2] for each in upstreams if each[1] == source}
        for side in sorted(sides):
            watermark_us = min(each[4] for each in upstreams if each[1] == source and each[2] == side)
            kept += [[str(number), source, side, None, watermark_us, False] for number in range(count)]
    return kept
