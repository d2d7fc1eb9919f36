"""Recipes: a model, its data and defaults, run by `tenon train NAME`."""
