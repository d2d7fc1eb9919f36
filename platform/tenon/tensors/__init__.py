"""The class ``Tensor``: its methods, creation, printing, storage and indexing.

The package is not called ``tenon.tensor``: importing a submodule of that name would replace the function
``tenon.tensor``.
"""
