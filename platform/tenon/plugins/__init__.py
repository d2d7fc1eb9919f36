"""The plugin host, built on pluggy: discovery, hooks, and the registry of components.

``hookspecs.py`` declares what a plugin may implement, ``loader.py`` finds and imports plugins in isolation,
``manager.py`` has the loaded ones, ``registry.py`` resolves names to objects, ``lazy.py`` adds the names of
plugins to modules such as ``tenon.optim``, ``diagnose.py`` describes all of it for ``tenon plugins``.
Plugin authors import ``tenon.extend`` instead.
"""
