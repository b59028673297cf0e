"""The project's own bench: `python -m bench`, from the root of the repository. Not part of the library."""
