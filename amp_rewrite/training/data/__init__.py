"""Examples, and how they are cut into batches."""
