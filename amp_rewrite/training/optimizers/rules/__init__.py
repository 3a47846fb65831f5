"""The update rules, each with its optimizers: in our spelling, TensorFlow 1's and Keras's."""
