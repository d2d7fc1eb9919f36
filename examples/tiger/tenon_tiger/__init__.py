"""The Tiger optimizer for tenon."""
