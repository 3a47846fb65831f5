"""The error budget: what each rounding adds to the error of the outputs, and what follows."""
