"""The update rules, each with its optimizers: in our spelling, TensorFlow 1's and Keras's.

Under TensorFlow's names the formulas are those of its kernels
(https://www.tensorflow.org/api_docs/python/tf/raw_ops, ApplyAdagrad and others).
"""
