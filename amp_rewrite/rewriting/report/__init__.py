"""The changes of a rewrite and their reasons: frozen records, their text, JSON, explanations."""
