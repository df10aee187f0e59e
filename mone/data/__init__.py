"""Data sources, image pipelines and augmentation."""

from mone.data.datasets import DatasetInfo, dataset_info
from mone.data.eval_pipeline import EvalBatches, eval_batches
from mone.data.presets import mixup_p
from mone.data.train_pipeline import TrainBatches, train_batches

__all__ = [
    "DatasetInfo",
    "EvalBatches",
    "TrainBatches",
    "dataset_info",
    "eval_batches",
    "mixup_p",
    "train_batches",
]
