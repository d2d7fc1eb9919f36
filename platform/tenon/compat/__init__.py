"""Modules that exist only for compatibility with PyTorch: private modules, flags, device stubs, legacy
classes.

``paths.py`` is the table of module names that refer to another module, ``finder.py`` the import hook that
reads it: ``import tenon.jit`` and ``import tenon.compat.jit`` give the same module.
"""
