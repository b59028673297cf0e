"""The OpenAPI document: what it says of methods, and that what it says is so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.doors.rig import doors


@dataclass
class Inner:
    n: int


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    """A payload of one type."""

    inner: Inner
    more: list[Inner] = []


def refs(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [ref for each in value.values() for ref in refs(each)]
    return [ref for each in value for ref in refs(each)] if isinstance(value, list) else []


async def test_the_document(home: Path) -> None:
    async with doors(home) as door:

        async def whole(it: Whole) -> int:
            """Takes a type."""
            return it.inner.n

        async def parts(inner: Inner, name: str = "x") -> int:
            return inner.n

        door.agent.add_method("whole", whole, public=True)
        door.agent.add_method("parts", parts, public=True)
        found = (await door.request("GET", "/hermes/v1/openapi.json")).json
        assert found["openapi"].startswith("3.1") and "/hermes/v1/invoke" in found["paths"]
        schemas = found["components"]["schemas"]
        for ref in refs(found):
            assert ref.startswith("#/components/schemas/") and ref.rpartition("/")[2] in schemas, ref
        tools = {tool["title"]: tool for tool in schemas["Request"]["properties"]["payload"]["anyOf"]}
        assert "secret" not in tools
        assert tools["whole"]["properties"].keys() == {"inner", "more", "tool", "task_id"}
        assert set(tools["whole"]["required"]) == {"tool", "inner"}
        assert tools["parts"]["properties"]["inner"]["$ref"] == "#/components/schemas/parts.Inner"
        assert tools["calculator"]["required"] == ["expression"]  # the default needs no name
        answer = await door.call("whole", {"inner": {"n": 5}, "task_id": "x"})
        assert answer["result"] == 5
