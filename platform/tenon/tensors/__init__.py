"""The class ``Tensor``: its methods, how tensors are made, printed, stored and indexed.

Not called ``tenon.tensor``: importing a submodule of that name would put it in place of the function
``tenon.tensor``.
"""
