"""Values and differentiation: tensors, ops, the tape. Knows no op, module or plugin by name."""
