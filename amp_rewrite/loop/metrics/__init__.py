"""What is measured on held-out examples."""
