"""What is wrong with one run of a step: the first value that is not finite, and what underflows."""
