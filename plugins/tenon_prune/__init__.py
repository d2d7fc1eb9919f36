"""First-party ways to choose which elements of a weight to keep."""
