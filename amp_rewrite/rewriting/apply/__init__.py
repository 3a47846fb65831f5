"""A plan is carried out; nothing is decided here."""
