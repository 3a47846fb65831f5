"""The painting passes, one a file."""
