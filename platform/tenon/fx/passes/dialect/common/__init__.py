"""Passes that are independent of the operator set."""
