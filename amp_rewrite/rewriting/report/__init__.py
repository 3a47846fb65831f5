"""What a rewrite did and why: frozen records, and their text, JSON and explanations."""
