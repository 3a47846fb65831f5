"""Epochs over data: train, evaluate, save, and go on where training stopped."""
