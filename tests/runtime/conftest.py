"""A home in tmp_path, coroutine tests, and a log that stays clean."""

from __future__ import annotations

from tests.loops import *  # noqa: F403
from tests.rooms import clean_log, home, quick_disk  # noqa: F401
