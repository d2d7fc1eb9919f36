"""Declares the recipes that `tenon train NAME` runs."""
