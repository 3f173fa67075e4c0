"""What is in an index of Elasticsearch."""

from __future__ import annotations

import contextlib
import json
from typing import Any
from urllib.request import Request, urlopen


def stored_documents(elasticsearch: str, index: str) -> list[dict[str, Any]]:
    """Return the documents that are there now, at most 10,000; none if there is no such index."""
    place = f"{elasticsearch}/{index}"
    with contextlib.suppress(OSError), urlopen(Request(f"{place}/_refresh", method="POST")):
        pass
    with urlopen(f"{place}/_search?size=10000&ignore_unavailable=true") as answer:
        return [hit["_source"] for hit in json.load(answer)["hits"]["hits"]]
