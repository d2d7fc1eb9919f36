"""For tests: ``assert_close`` as torch.testing has it, and the conformance kit for plugins' own tests."""

from __future__ import annotations

from tenon.testing.comparison import assert_close

__all__ = ["assert_close"]
