"""Training: budgets, losses, optimiser, one sharded step, checkpoints and the loop."""

from mone.training.loop import NonFiniteError, train
from mone.training.workdir import load_trained, read_config

__all__ = ["NonFiniteError", "load_trained", "read_config", "train"]
