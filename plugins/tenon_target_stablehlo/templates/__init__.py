"""Files that are written beside a model."""
