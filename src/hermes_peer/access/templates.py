"""The two files that a new home starts with.

Knows: their text, which is the first documentation a user reads. Refuses to know: how they are parsed or
written. Called by: home.
"""

TRUST = """\
# Who may connect. Nobody else can: an empty file means nobody, and a deny wins over every pin.
# Agents of this home trust each other already, through the pins they leave in trust.d/.
# `hermes-peer trust add|deny|remove` edits this file; a running agent sees a change within a second.
#
# On the other machine, `hermes-peer trust show` prints the line to run here.
#
# [[pin]]
# fingerprint = "64 hex digits"            # the key; only it decides
# name = "worker"                          # what this key is called here, whatever it calls itself
# at = "hermes://192.0.2.7:7891"           # optional: where to dial it
# not_after = "2027-01-01"                 # optional: the last day (UTC) on which the pin holds
# note = "the machine under the stairs"    # optional
#
# [[deny]]
# fingerprint = "64 hex digits"
# reason = "stolen laptop"
"""

POLICY = """\
# Which agent may call which method of which agent. What no rule allows is refused.
# A rule with allow = false wins over every other, wherever it stands.
#
# caller   a name that trust.toml grants, "home" (any agent of this home), "fp:64 hex digits",
#          "door:NAME" (who came through the HTTP, WebSocket or socket door), "*" (anyone who got in),
#          or a list of these
# agent    the called agent of this home, "*" (any of them), or a list
# method   whole segments between dots; "*" as the last segment stands for one or more segments, elsewhere for
#          exactly one: "text.*" covers text.shout and text.words.count, but neither text nor textual.shout.
#          "**", only as the last segment, means the same as "*" there.
#          hermes.* are the product's own methods. An allowing "*" or "**" never reaches them; these words do:
#          "read"     ping, describe, status, watch, trace
#          "operate"  dead, settle, resume, cancel, tap
#          "public" stands for the methods that are marked public=True in the agent's code.
# allow    true or false
#
# `hermes-peer policy check CALLER AGENT METHOD` says which rule decides.

# Agents of this home may call each other.
[[rule]]
caller = "home"
agent = "*"
method = ["**", "read", "operate"]
allow = true

# Any program of this machine may call, by a door (--http), what an agent's author marked public=True.
[[rule]]
caller = "door:loopback"
agent = "*"
method = "public"
allow = true
"""
