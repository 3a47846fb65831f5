"""A model painted again: with other rules, by what was measured."""
