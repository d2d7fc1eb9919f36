"""Emitters, one module for each family of ops."""
