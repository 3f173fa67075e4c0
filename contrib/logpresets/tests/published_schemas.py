"""Takes what presets name out of the published schemas: attributes of OCSF by class, fields of ECS.

``python published_schemas.py OCSF ECS`` writes both files in ``published`` anew, from checkouts of ocsf/ocsf-schema and elastic/ecs.
A name that the schemas do not have is not in the files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from headrace_logpresets.ocsf import CLASSES, OcsfNames
from headrace_logpresets.presets import Choices, presets

PUBLISHED = Path(__file__).parent / "published"


def names(*, ocsf: bool) -> dict[str, dict[str, pl.DataType]]:
    """Return all columns of each preset, by its name."""
    found = {}
    for name, preset in presets().items():
        choices = Choices(ecs=True, header=preset.syslog)
        found[name] = dict((OcsfNames.of(preset) if ocsf else preset).columns(choices))
    return found


class OcsfSchema:
    """A checkout of the schema. Of its extensions only that of Windows is read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.version: str = self._load("version.json")["version"]
        windows = "extensions/windows"
        self._dictionary = {
            **self._load("dictionary.json")["attributes"],
            **self._load(f"{windows}/dictionary.json")["attributes"],
        }
        self._events = self._documents("events") | self._documents(f"{windows}/events", "win/")
        self._objects = self._documents(f"{windows}/objects") | self._documents("objects")

    def type_of(self, event: str, path: str) -> str | None:
        """Return the type of an attribute of a class, ``[]`` behind that of an array; None: there is none."""
        attributes = self._attributes(self._events[event], self._events)
        *outer, last = path.split(".")
        for name in outer:
            kind = self._entry(attributes, name)
            if kind is None or kind.endswith("[]") or kind not in self._objects:
                return None
            attributes = self._attributes(self._objects[kind], self._objects)
        return self._entry(attributes, last)

    def _entry(self, attributes: dict[str, Any], name: str) -> str | None:
        if name not in attributes:
            return None
        entry = {**self._dictionary.get(name, {}), **attributes[name]}
        kind: str = entry.get("object_type", entry["type"]).split("/")[-1]
        return f"{kind}[]" if entry.get("is_array") else kind

    def _attributes(self, document: dict[str, Any], among: dict[str, Any]) -> dict[str, Any]:
        parent = among.get(document.get("extends", ""))
        found = {} if parent is None or parent is document else self._attributes(parent, among)
        own = document.get("attributes", {})
        included = own.get("$include", [])
        for path in [included] if isinstance(included, str) else included:
            found.update(self._load(path)["attributes"])
        return {name: entry for name, entry in {**found, **own}.items() if not name.startswith("$")}

    def _documents(self, directory: str, prefix: str = "") -> dict[str, Any]:
        documents = [json.loads(path.read_text()) for path in sorted((self._root / directory).rglob("*.json"))]
        return {prefix + each["name"]: each for each in documents if "name" in each}

    def _load(self, path: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self._root / path).read_text())
        return document


def main(ocsf_checkout: Path, ecs_checkout: Path) -> None:
    """Write the files."""
    schema = OcsfSchema(ocsf_checkout)
    classes: dict[str, dict[str, str]] = {}
    for preset, columns in names(ocsf=True).items():
        for event in CLASSES[preset]:
            kinds = {name: schema.type_of(event, name) for name in columns}
            classes.setdefault(event, {}).update({name: kind for name, kind in kinds.items() if kind is not None})
    _write("ocsf.json", {"version": schema.version, "classes": classes})
    flat = yaml.safe_load((ecs_checkout / "generated/ecs/ecs_flat.yml").read_text())
    ours = {name for columns in names(ocsf=False).values() for name in columns}
    fields = {name: flat[name]["type"] for name in ours if name in flat}
    sets = sorted({name.split(".")[0] for name in flat})
    version = (ecs_checkout / "version").read_text().strip()
    _write("ecs.json", {"version": version, "sets": sets, "fields": fields})


def _write(name: str, content: dict[str, Any]) -> None:
    (PUBLISHED / name).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
