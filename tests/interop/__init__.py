"""Tests against other implementations; a package, so that its file names collide with nobody's."""
