"""The update rules, each with the optimizers that have it: in our spelling, TF 1's and Keras's.

Formulas of TensorFlow's names are those of its kernels
(https://www.tensorflow.org/api_docs/python/tf/raw_ops, ApplyAdagrad and its neighbours). What Keras
and this package both have under one name takes Keras's arguments as well; docs/from_tensorflow.md
has the formulas where numbers differ.
"""
