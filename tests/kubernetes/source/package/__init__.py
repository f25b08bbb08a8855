"""A package, so that the source has a folder."""
