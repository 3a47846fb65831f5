"""What the numbers of every value are bound to be, from the model alone; no data are needed."""
