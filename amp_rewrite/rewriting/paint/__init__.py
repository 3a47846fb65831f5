"""Painting: which type variables become low precision, and why.

Each pass is a class without state in a file of its own that maps (context, painting) to a new
painting; `pipeline.paint` runs them in the order of the algorithm, which restates TensorFlow's
Grappler pass auto_mixed_precision for ONNX.
"""
