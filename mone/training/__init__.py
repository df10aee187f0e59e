"""Training: step, loop, checkpoints and sharding."""
