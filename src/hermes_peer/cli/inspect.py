"""`hermes-peer inspect AGENT`: what it offers, and how it is.

Knows: the words of the command, how a schema reads as a signature. Refuses to know: how an agent describes itself.
Called by: app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_peer.cli import failures, options, out

if TYPE_CHECKING:
    from hermes_peer.agent.agent import HermesAgent


def inspect(
    agent: options.Target, ttl: options.Ttl = None, json: options.Json = False, home: options.Home = None
) -> int:
    """Show an agent's methods, links and load.

    \b
    Examples:
      hermes-peer inspect worker
      hermes-peer inspect worker --json | jq '.methods[].name'
    """
    import asyncio

    from hermes_peer.cli.visit import contact_of, visit

    async def work(me: HermesAgent) -> int:
        contact = await contact_of(me, agent, ttl or 30.0)
        asked: tuple[Any, Any] = await asyncio.gather(
            me.call_contact(contact, "hermes.describe", None, ttl=ttl),
            me.call_contact(contact, "hermes.status", None, ttl=ttl),
            return_exceptions=True,
        )
        problems = [each for each in asked if isinstance(each, BaseException)]
        if len(problems) == 2:
            raise problems[0]
        about: dict[str, Any] = {} if isinstance(asked[0], BaseException) else asked[0]
        status: dict[str, Any] = {} if isinstance(asked[1], BaseException) else asked[1]
        if json:
            out.json_line({"agent": contact.name, **about, "status": status or None})
        else:
            for line in (*_head(contact.name, contact.peer.fingerprint.hex(), about, status), *_methods(about)):
                out.line(out.shown(line))
        for problem in problems:
            out.note(failures.sentence(problem))
        return failures.exit_code(problems[0]) if problems else 0

    return visit(work, home=home, json=json)


def _head(name: str, fingerprint: str, about: dict[str, Any], status: dict[str, Any]) -> list[str]:
    lines = [name, f"  fingerprint  {fingerprint}"]
    if about.get("capabilities"):
        lines.append(f"  capabilities {', '.join(map(str, about['capabilities']))}")
    if not status:
        return lines
    lines.append(f"  instance     {status.get('instance')} (process {status.get('pid')}, {status.get('product')})")
    lines += [f"  address      {each}" for each in _places(status.get("addresses"))]
    calls = status.get("calls") or {}
    lines.append(
        f"  calls        {calls.get('running', 0)} running, {calls.get('served', 0)} served "
        f"in {_span(status.get('up_s'))}" + ("" if status.get("accepting") else "; it is shutting down")
    )
    for link in status.get("links") or []:
        rtt = f", {link['rtt_ms']:.1f} ms" if isinstance(link.get("rtt_ms"), int | float) else ""
        sealed = ", not sealed" if link.get("sealed") is False else ""
        lines.append(f"  link         {link.get('agent')} ({link.get('state')}{rtt}{sealed})")
    lines += [f"  problem      {status[each]}" for each in ("trust_problem", "policy_problem") if status.get(each)]
    return lines


def _places(addresses: Any) -> list[str]:
    """Addresses without the fingerprint, which stands above."""
    texts = [str(each) for each in addresses] if isinstance(addresses, list) else []
    return [text.partition("://")[0] + "://" + text.partition("://")[2].rpartition("@")[2] for text in texts]


def _span(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return "an unknown time"
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _methods(about: dict[str, Any]) -> list[str]:
    if not about:
        return []
    methods = about.get("methods") or []
    if not methods:
        return ["", "it offers no method that you may call"]
    lines = ["", "methods"]
    for each in methods:
        gives = spoken(each.get("schema_out"), {})
        arrow = f" yields {gives}" if each.get("stream") else f" -> {gives}"
        kind = "" if each.get("kind") == "method" else f"  ({each.get('kind')})"
        lines.append(f"  {each.get('name')}({parameters(each.get('schema_in'))}){arrow}{kind}")
        doc = str(each.get("doc") or "").strip().split("\n")[0]
        if doc:
            lines.append(f"      {doc}")
    return lines


def parameters(schema: Any) -> str:
    """`text: string, n: integer = 3` of an input schema."""
    if not isinstance(schema, dict):
        return "…"
    shared = schema.get("$defs") or {}
    schema = _followed(schema, shared)
    required = schema.get("required") or []
    said = []
    for name, part in (schema.get("properties") or {}).items():
        default = "" if name in required else f" = {out.as_json(part.get('default'))}" if "default" in part else "?"
        said.append(f"{name}: {spoken(part, shared)}{default}")
    if not said and schema.get("additionalProperties") is not False:
        return "any object"
    return ", ".join(said)


def spoken(schema: Any, shared: dict[str, Any]) -> str:
    """A schema in a word or two."""
    if not isinstance(schema, dict):
        return "anything"
    shared = schema.get("$defs") or shared
    schema = _followed(schema, shared)
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(spoken(each, shared) for each in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(out.as_json(each) for each in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {spoken(schema.get('items'), shared)}" if schema.get("items") else "list"
    if kind == "object" and schema.get("title"):
        return str(schema["title"])
    return str(kind) if isinstance(kind, str) else "anything"


def _followed(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    found = shared.get(reference.rpartition("/")[2]) if isinstance(reference, str) else None
    return found if isinstance(found, dict) else schema
