"""The sections ``[plugins.NAME]`` of a configuration, each validated by the model that a plugin declares.

A plugin declares its sections with the hook ``tenon_sections``, and reads them with ``session.section``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenon.errors import ConfigError, PluginNotFoundError
from tenon.plugins import registry
from tenon.training.layers import dotted
from tenon.training.sections import Section


def model_of(name: str) -> type[Section]:
    """The class of the section ``name``; ConfigError if no loaded plugin declares it."""
    try:
        return registry.resolve_class("sections", name, Section)
    except PluginNotFoundError as error:
        raise ConfigError(
            f"{dotted(['plugins', name])}: {error}\nInstall the plugin, or leave the section out."
        ) from None


def read(tables: object) -> object:
    """The sections of ``tables`` by name; anything but a mapping is returned as it is.

    pydantic's ValidationError for a section with unknown keys or bad values.
    """
    if not isinstance(tables, Mapping):
        return tables
    return {
        str(name): table if isinstance(table, Section) else model_of(str(name)).model_validate(table)
        for name, table in tables.items()
    }
