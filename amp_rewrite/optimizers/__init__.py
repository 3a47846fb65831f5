"""What optimizers stand on: gradients as users hold them, slots, clipping, schedules."""
