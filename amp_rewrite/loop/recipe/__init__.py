"""A loss, variables and an optimizer from words, as the command line gives them."""
