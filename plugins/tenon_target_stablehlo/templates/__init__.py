"""Files that are written next to a model."""
