"""The session that runs a training step, with its state on the device."""
