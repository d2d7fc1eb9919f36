"""Training runs: configuration, a small loop, checkpoints, metrics. ``tenon train`` is its command."""

from __future__ import annotations
