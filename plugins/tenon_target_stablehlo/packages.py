"""The package ``jax``, imported only to run a module and to write its bytecode."""

from __future__ import annotations

import importlib
import importlib.util

from tenon.extend import errors, process_environment
from tenon_target_stablehlo.module import VERSION

_HINT = "Run: pip install 'tenon-platform[jax]'."


def reason() -> str | None:
    """Return a message if jax is not installed, else None; this does not import it, which takes seconds."""
    if importlib.util.find_spec("jax") is None or importlib.util.find_spec("jaxlib") is None:
        return f"running StableHLO needs the package jax. {_HINT}"
    return None


def portable(text: str) -> bytes | None:
    """Return the portable bytecode of a module, which is parsed and checked for it; None without jaxlib.

    GraphError if MLIR refuses the module.
    """
    if importlib.util.find_spec("jaxlib") is None:
        return None
    process_environment().setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # as jax does: no notes on stderr
    dialect = importlib.import_module("jaxlib.mlir.dialects.stablehlo")
    try:
        code: bytes = dialect.serialize_portable_artifact_str(text, VERSION)
    except ValueError as error:  # MLIR has written the reason to stderr
        raise errors.GraphError(
            f"MLIR refuses the module: {error}. That is an error of the target stablehlo; please report it "
            "with the model."
        ) from error
    return code
