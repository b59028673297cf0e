"""Coroutine tests."""

from tests.loops import *  # noqa: F403
