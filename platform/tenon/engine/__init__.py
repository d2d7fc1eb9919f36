"""Values, ops and differentiation: dispatch, the tape, backward. Knows no op, module or plugin by name."""
