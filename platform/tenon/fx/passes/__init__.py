"""Passes over traced programs: shapes, splitting, matching, partitions, drawing."""
