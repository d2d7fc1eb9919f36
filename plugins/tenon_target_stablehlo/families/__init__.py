"""The forms of ops, one module for each family."""
