"""Functions that runners contain, one family of ops per file.

They are read as text: ``library.py`` copies those that a graph needs, with those that they call. A function
has the name, operands and attributes of its op; ``NAME_saved`` also returns the op's residuals, for its
gradient. They use NumPy and one another only.
"""
