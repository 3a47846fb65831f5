"""How large the numbers of every value are likely to be, from the model alone: estimates."""
