"""Facts about the numbers in values, found without data."""
