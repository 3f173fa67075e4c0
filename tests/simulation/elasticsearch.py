"""A simulated Elasticsearch: what the sink of headrace-elasticsearch asks of a server, at the place of a node of its transport.

A bulk request is carried out document by document: some may be refused because the server is too busy, the answer may be lost, and a
request that the sink has given up may be carried out later, after it has been sent again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import elastic_transport
from elastic_transport import ApiResponseMeta, BaseNode, HttpHeaders, NodeConfig

from tests.simulation.servers import Server, shown
from tests.simulation.world.scheduler import World

_US = 800
#: How long a request may lie somewhere before it is carried out.
_LATE_US_MAX = 5_000_000
_META = {status: ApiResponseMeta(status, "1.1", HttpHeaders({"content-type": "application/json"}), 0.0, NodeConfig("http", "es", 9200))
         for status in (200, 201, 400, 404, 429, 503)}  # fmt: skip


class Elasticsearch(Server):
    """The server: indices and their documents by id. ``node`` stands for the class of the transport's nodes."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.indices: dict[str, dict[str, dict[str, Any]]] = {}
        self.mappings: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self.faults: list[str] = []
        #: How many of 100 documents are refused for now.
        self.busy = 0.0
        #: Whether an id gets one document for ever.
        self.unchanging = True
        #: Requests that are still somewhere: when they are carried out, and what they are.
        self._late: list[tuple[int, str, bytes]] = []

    def node(self) -> type[BaseNode]:
        """Return a class for the transport's nodes."""
        return type("Node", (_Node,), {"server": self})

    def there(self, index: str) -> Counter[str]:
        """Return the documents of an index, and how often each is there."""
        self.settle()
        return Counter(shown(row_of(document)) for document in self.indices.get(index, {}).values())

    def settle(self, *, all_of_them: bool = False) -> None:
        """Carry out what comes late."""
        due = [each for each in self._late if all_of_them or each[0] <= self.world.us]
        self._late = [each for each in self._late if each not in due]
        for _, target, body in sorted(due):
            self.world.trace.add(self.world.us, self.name, "late", target)
            self.carry_out("POST", target, body)

    def late(self, target: str, body: bytes) -> None:
        """A request that the sink has given up is still somewhere."""
        self._late.append((self.world.us + int(self.world.random.random() * _LATE_US_MAX), target, body))

    # ---------------------------------------------------------------------------------------------------- answers

    def carry_out(self, method: str, target: str, body: bytes | None) -> tuple[int, Any]:
        """Return status and answer of a request."""
        path = target.partition("?")[0]
        if path == "/":
            return 200, {"version": {"number": "9.1.0"}}
        if path.endswith("/_bulk"):
            assert body is not None
            return 200, self._bulk(path.split("/")[1], body)
        if path == "/_security/user/_has_privileges":
            return 400, {"error": {"type": "no_security", "reason": "no handler found"}}
        index = path.split("/")[1]
        if path.endswith("/_mapping"):
            if index not in self.indices:
                return 404, {"error": {"type": "index_not_found_exception", "reason": f"no such index [{index}]"}}
            return 200, {index: {"mappings": self.mappings[index]}}
        assert method == "PUT", f"not a request that the simulated server knows: {method} {target}"
        if index in self.indices:
            return 400, {"error": {"type": "resource_already_exists_exception", "reason": f"index [{index}] exists"}}
        self.indices[index] = {}
        self.mappings[index] = json.loads(body or b"{}").get("mappings", {})
        return 200, {"acknowledged": True}

    def _bulk(self, index: str, body: bytes) -> Mapping[str, Any]:
        lines = iter(body.splitlines())
        items = []
        for line in lines:
            [(verb, action)] = json.loads(line).items()
            document = None if verb == "delete" else json.loads(next(lines))
            items.append({verb: self._one(index, verb, action, document)})
        return {"errors": any("error" in next(iter(each.values())) for each in items), "items": items}

    def _one(self, index: str, verb: str, action: Mapping[str, Any], document: Any) -> dict[str, Any]:
        if self.busy and self.world.random.random() < self.busy:
            error = {
                "type": "es_rejected_execution_exception",
                "reason": "rejected execution of coordinating operation",
            }
            return {"status": 429, "error": error}
        documents, name = self.indices[index], action["_id"]
        version = action.get("version")
        if version is not None:
            if version < self.versions.get(name, -1):
                error = {"type": "version_conflict_engine_exception", "reason": "current version is higher"}
                return {"status": 409, "error": error}
            self.versions[name] = version
        if verb == "delete":
            return {"status": 200 if documents.pop(name, None) is not None else 404}
        before = documents.get(name)
        if before is not None and before != document and self.unchanging:
            self.faults.append(f"document {name} was {before} and would be {document}")
        if before is not None and verb == "create":
            error = {"type": "version_conflict_engine_exception", "reason": "document already exists"}
            return {"status": 409, "error": error}
        documents[name] = document
        return {"status": 201 if before is None else 200}


class _Node(BaseNode):
    server: Elasticsearch

    def perform_request(
        self, method: str, target: str, body: bytes | None = None, headers: HttpHeaders | None = None,
        request_timeout: Any = None,
    ) -> Any:  # fmt: skip
        server, world = self.server, self.server.world
        what = f"{method} {target.partition('?')[0]}"
        world.step(server.name, what)
        world.pause(int(_US * (0.5 + world.random.random())))
        server.settle()
        if self._fails(what, "it is not there"):
            if body is not None and "_bulk" in target and world.random.random() < 0.5:
                server.late(target, body)
            raise elastic_transport.ConnectionError("connection refused")
        status, answer = server.carry_out(method, target, body)
        world.step(f"{server.name}.done", what)
        if self._fails(what, "its answer was lost"):
            if world.random.random() < 0.5:
                raise elastic_transport.ConnectionTimeout("connection timed out")
            return elastic_transport._node._base.NodeApiResponse(_META[503], b"<html>no server</html>")
        return elastic_transport._node._base.NodeApiResponse(_META[status], json.dumps(answer).encode())

    def _fails(self, what: str, why: str) -> bool:
        server, world = self.server, self.server.world
        away = any(begin <= world.us < end for begin, end in server.away)
        if away or world.random.random() < server.lossy:
            world.trace.add(world.us, server.name, "fails", f"{what}: {why}")
            return True
        return False

    def close(self) -> None:
        """Nothing is held."""


def row_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as a row: the columns of windows are times."""
    return {
        name: datetime.fromisoformat(value) if name.startswith("window_") else value for name, value in document.items()
    }
