"""What must hold between a model and its rewritten form, one invariant a file."""
