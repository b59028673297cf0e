"""Pure machines: link, session, stream, credit. No await, clock, dice, disk or log."""
