"""The update rules, each with the optimizer that has it."""
