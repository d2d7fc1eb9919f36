"""The Lion optimizer for tenon."""
