"""The export target ``numpy``: one readable Python file that runs a model with NumPy alone."""
