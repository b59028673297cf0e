"""The seed's caller, on nothing but Python's own library: asks the calculator, and says what came back.

python examples/caller.py "2 + 2 * 3" [http://127.0.0.1:8000]
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen


def send_calculation_task(url: str, expression: str, task_id: str = "", trace_id: str = "") -> dict[str, Any]:
    """What became of one expression: status, result or error, and how long it took."""
    message = {
        "meta": {
            "version": "1.2",
            "msg_type": 1,
            "sender_id": "caller-001-dev-laptop",
            "receiver_id": None,
            "ttl": 65,
            "trace_id": trace_id or uuid.uuid4().hex,
        },
        "payload": {"task_id": task_id or str(uuid.uuid4()), "tool": "calculator", "expression": expression},
    }
    request = Request(
        f"{url.rstrip('/')}/hermes/v1/invoke",
        data=json.dumps(message).encode(),
        headers={"Content-Type": "application/hermes+json"},
    )
    started = time.monotonic()
    try:
        with urlopen(request, timeout=70) as response:
            answer = json.load(response)
    except HTTPError as error:  # the body says why, all the same
        answer = json.load(error)
    except (URLError, TimeoutError) as error:
        return {"status": "error", "message": f"no answer: {error}"}
    payload = answer["payload"]
    if payload["status"] == "error":
        return {key: payload.get(key) for key in ("status", "error_code", "reason", "detail", "hint")}
    return {
        "status": payload["status"],
        "task_id": payload["task_id"],
        "result": payload["result"],
        "trace_id": answer["meta"]["trace_id"],
        "latency_ms": round((time.monotonic() - started) * 1000, 1),
    }


if __name__ == "__main__":
    expression = sys.argv[1] if len(sys.argv) > 1 else "2 + 2 * 3"
    found = send_calculation_task(sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8000", expression)
    print(json.dumps(found, indent=2, ensure_ascii=False))
    sys.exit(found["status"] != "success")
