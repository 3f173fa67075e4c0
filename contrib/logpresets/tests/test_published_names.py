"""Names by OCSF and ECS are in the schemas that are published, with their types. ``published_schemas`` makes the files."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from headrace_logpresets.ocsf import CLASSES
from headrace_logpresets.presets import presets
from published_schemas import PUBLISHED, names

OCSF: dict[str, Any] = json.loads((PUBLISHED / "ocsf.json").read_text())
ECS: dict[str, Any] = json.loads((PUBLISHED / "ecs.json").read_text())
_TEXTS = {
    "string_t", "hostname_t", "ip_t", "uuid_t", "url_t", "email_t", "username_t", "process_name_t", "file_path_t", "mac_t",
    "file_name_t", "resource_uid_t", "reg_key_path_t",
}  # fmt: skip
#: Elasticsearch takes a number for a keyword, and an array for every type.
_KEYWORDS = {"keyword", "wildcard", "match_only_text", "ip"}


def ocsf_types(kind: pl.DataType) -> set[str]:
    if isinstance(kind, pl.List):
        return {f"{name}[]" for name in ocsf_types(kind.inner)}  # type: ignore[arg-type]
    if isinstance(kind, pl.Datetime):
        return {"timestamp_t"}
    return {
        pl.String(): _TEXTS,
        pl.Int64(): {"integer_t", "long_t", "port_t"},
        pl.Float64(): {"float_t"},
        pl.Boolean(): {"boolean_t"},
    }[kind]


def ecs_types(kind: pl.DataType) -> set[str]:
    if isinstance(kind, pl.List):
        return ecs_types(kind.inner)  # type: ignore[arg-type]
    if isinstance(kind, pl.Datetime):
        return {"date"}
    return {
        pl.String(): _KEYWORDS | {"flattened"},
        pl.Int64(): {"long", "keyword"},
        pl.Float64(): {"float"},
        pl.Boolean(): {"boolean"},
    }[kind]


@pytest.mark.parametrize("preset", sorted(presets()))
def test_attributes_are_in_a_class_of_the_preset(preset: str) -> None:
    assert OCSF["version"] == "1.4.0"  # as the page says
    columns = names(ocsf=True)[preset]
    assert "time" in columns or "start_time" in columns
    for name, kind in columns.items():
        found = {OCSF["classes"][event].get(name) for event in CLASSES[preset]}
        assert name.startswith("unmapped.") or found & ocsf_types(kind), (name, kind, found)


@pytest.mark.parametrize("preset", sorted(presets()))
def test_fields_are_in_the_schema_or_in_a_set_of_their_own(preset: str) -> None:
    assert ECS["version"] == "9.4.0"  # as the page says
    for name, kind in names(ocsf=False)[preset].items():
        if name in ECS["fields"]:
            assert ECS["fields"][name] in ecs_types(kind), (name, kind)
        else:
            assert name.split(".")[0] not in ECS["sets"], name
