"""Tests of the crypto room; a package, so that its file names collide with nobody's."""
