"""PyTorch's ``nn.utils.parametrizations``: names come from plugins.

``orthogonal``, ``spectral_norm`` and ``weight_norm`` are looked up in the plugin host at their first use,
as is whatever else a plugin offers by ``tenon_parametrizations``.
"""

from __future__ import annotations

from tenon.plugins.lazy import lazy_namespace

__getattr__, __dir__ = lazy_namespace(__name__, kind="parametrizations")
