"""Where agents are found: signed records and the places that hold them.

Knows: records, folders. Refuses to know: who is trusted (it is handed a judge) and how to dial.
Called by: agent (look-ups, announcing), cli (list), services (the registry over hermes://).
"""
