"""Declares what writes TensorBoard event files."""
