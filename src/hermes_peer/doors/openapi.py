"""The OpenAPI document of a door, for exactly the methods that its reader may call.

Knows: OpenAPI 3.1, the shapes of docs/spec/invoke.md. Refuses to know: HTTP, agents. Called by: app.
"""

from __future__ import annotations

import copy
from typing import Any

from hermes_peer import Code
from hermes_peer.wire.invoke import TEXT_MAX, TTL_MAX, VERSION, Type

_ID = {"type": "string", "maxLength": TEXT_MAX}
_META: dict[str, Any] = {
    "type": "object",
    "required": ["version", "msg_type", "sender_id", "receiver_id", "ttl", "trace_id"],
    "additionalProperties": False,
    "properties": {
        "version": {"const": VERSION},
        "msg_type": {"enum": [int(each) for each in Type]},
        "sender_id": _ID,
        "receiver_id": {"type": ["string", "null"], "maxLength": TEXT_MAX},
        "ttl": {"type": "number", "minimum": 0, "maximum": TTL_MAX},
        "trace_id": _ID,
    },
}
_RESULT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "task_id": {"type": "string"},
        "status": {"enum": ["success", "error", "accepted"]},
        "error_code": {"enum": [int(code) for code in Code]},
        "name": {"enum": [code.name for code in Code]},
        "reason": {"type": "string"},
        "detail": {"type": "string"},
        "hint": {"type": "string"},
        "retryable": {"type": "boolean"},
        "retry_after": {"type": "number"},
        "items": {"type": "array"},
    },
}
_ANSWER = {
    "type": "object",
    "required": ["meta", "payload"],
    "properties": {"meta": _META, "payload": {"$ref": "#/components/schemas/Result"}},
}
_REFUSALS = {
    "400": "a meta or body that cannot be read",
    "401": "a token is needed, or was not right",
    "403": "a page that may not use this door",
    "408": "the body did not come in time",
    "413": "the body is too large",
    "415": "not JSON in UTF-8",
    "421": "a Host that this door does not answer to",
    "503": "the agent is not running",
}


def document(description: dict[str, Any]) -> dict[str, Any]:
    """OpenAPI 3.1 from what `describe` tells."""
    schemas: dict[str, Any] = {"Meta": _META, "Result": _RESULT, "Answer": _ANSWER}
    tools = [_tool(method, schemas) for method in description["methods"]]
    request_meta = {**_META, "properties": {**_META["properties"], "msg_type": {"const": int(Type.TASK_REQUEST)}}}
    request = {
        "type": "object",
        "required": ["meta", "payload"],
        "additionalProperties": False,
        "properties": {"meta": request_meta, "payload": {"anyOf": tools} if tools else {"type": "object"}},
    }
    schemas["Request"] = request
    one = {"schema": {"$ref": "#/components/schemas/Answer"}}
    answer = {"application/json": one, "application/hermes+json": one}
    answers = {
        "200": {
            "description": "how it ended; `payload.status` says whether well",
            "content": {**answer, "text/event-stream": {"schema": {"type": "string"}}},
        },
        **_refusals(),
    }
    anything = {"application/json": {"schema": {"type": "object"}}}
    plain = {"200": {"description": "as it says", "content": anything}, **_refusals("401", "403", "421", "503")}
    base = "/hermes/v1"
    return {
        "openapi": "3.1.0",
        "info": {"title": description["agent"], "version": description["product"], "description": "A Hermes door."},
        "paths": {
            f"{base}/invoke": {
                "post": {
                    "operationId": "invoke",
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Request"}},
                            "application/hermes+json": {"schema": {"$ref": "#/components/schemas/Request"}},
                        },
                    },
                    "responses": answers,
                }
            },
            **{
                f"{base}/{name}": {"get": {"operationId": name.partition(".")[0], "responses": plain}}
                for name in ("describe", "openapi.json", "health", "ready")
            },
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _refusals(*only: str) -> dict[str, Any]:
    one = {"schema": {"$ref": "#/components/schemas/Answer"}}
    content = {"application/json": one, "application/hermes+json": one}
    return {
        status: {"description": said, "content": content}
        for status, said in _REFUSALS.items()
        if not only or status in only
    }


def _tool(method: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The payload of one method: its own fields, and those of the door."""
    name = method["name"]
    schema = copy.deepcopy(method["schema_in"] or {})
    for inner, found in (schema.pop("$defs", None) or {}).items():
        schemas[f"{name}.{inner}"] = _moved(found, name)
    schema = _moved(schema, name)
    own = {
        "tool": {"const": name},
        "task_id": {"type": "string", "minLength": 1, "maxLength": TEXT_MAX, "pattern": "^[ -~]+$"},
    }
    if "$ref" in schema:  # the whole payload is one type, which may be closed: its fields and ours side by side
        target = schemas[schema.pop("$ref").rpartition("/")[2]]
        schema = {**copy.deepcopy(target), **schema}
    required = [*([] if method["default"] else ["tool"]), *schema.get("required", [])]
    schema.update(type="object", title=name, properties={**schema.get("properties", {}), **own}, required=required)
    if method["doc"]:
        schema["description"] = method["doc"]
    return schema


def _moved(value: Any, name: str) -> Any:
    """With every `$ref` into the schema's own `$defs` led to where they now stand."""
    if isinstance(value, dict):
        return {
            key: f"#/components/schemas/{name}.{found[8:]}"
            if key == "$ref" and isinstance(found, str) and found.startswith("#/$defs/")
            else _moved(found, name)
            for key, found in value.items()
        }
    return [_moved(each, name) for each in value] if isinstance(value, list) else value
