"""The only rooms that know core and transport: pump, contact, endpoint, back-off, deadlines, runner."""
