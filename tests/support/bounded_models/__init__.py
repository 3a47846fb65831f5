"""Random models with a bound of what rounding does to each of their values.

Every tensor is float32 (2, 4), so that any operator fits behind any other. What is known of a value
is the largest magnitude that it can have and the largest error that it can have once any value on
the way to it is rounded: a row of a family says how its operator carries both on. The bounds follow
from the types alone, by forward error analysis in the maximum norm (Higham, Accuracy and Stability
of Numerical Algorithms, 2002, chapter 3).
"""
