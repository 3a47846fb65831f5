"""What is known of the numbers in values without data."""
