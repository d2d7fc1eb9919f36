"""The plugin host, built on pluggy: discovery, hooks, and the registry of components.

``hookspecs.py`` says what a plugin may implement, ``loader.py`` finds and imports plugins in isolation,
``manager.py`` holds the loaded ones, ``registry.py`` turns names into objects, ``lazy.py`` gives modules
such as ``tenon.optim`` their plugin names, ``diagnose.py`` explains it all to people.
Plugin authors import ``tenon.extend`` instead.
"""
