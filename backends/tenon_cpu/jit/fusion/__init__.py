"""Kernels generated for clusters of ops, and how a program calls them."""
