"""Every image of a split once, over all hosts, in batches of one size.

Axes: B images of this host's batch, H W C image.
"""

from collections.abc import Iterator

import grain
import numpy as np
from ml_collections import ConfigDict

from mone.data.datasets import check_classes, host_batch, open_split
from mone.data.sources import ImageSource, UnreadableImageError, UnreadableImages
from mone.data.train_pipeline import Batch, to_batches
from mone.data.transforms import check_transforms, eval_transform


class EvalBatches:
    """Evaluation batches; made by `eval_batches`. Can be iterated any number of times.

    Attributes:
        num_examples: Images in the split, over all hosts.
    """

    def __init__(
        self,
        dataset: grain.IterDataset,
        *,
        steps: int,
        num_examples: int,
        unreadable: UnreadableImages,
    ):
        self.num_examples = num_examples
        self._dataset = dataset
        self._steps = steps
        self._unreadable = unreadable

    def __len__(self) -> int:
        """Return the number of batches, the same on every host."""
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        """Yield `image`: float32 [B, H, W, C], `label`: int32 [B], `mask`: float32 [B].

        The mask is 0 for padding and for an image that cannot be read, else 1.
        """
        iterator = iter(self._dataset)
        try:
            yield from iterator
        finally:
            iterator.close()

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Images that this host could not read so far, each named once."""
        return self._unreadable.names


def eval_batches(
    config: ConfigDict,
    *,
    split: str | None = None,
    process_index: int = 0,
    process_count: int = 1,
) -> EvalBatches:
    """Open a split for evaluation.

    An unreadable image is masked out, named once in a warning (logger `mone.data`) and listed in
    `unreadable`: it counts neither as right nor as wrong.

    Args:
        config: Fields eval.batch_size, data.*, model.image_size, model.channels,
            model.num_classes.
        split: Another split than data.eval_split.
        process_index: This host, 0 .. process_count - 1; host r takes every image whose position
            is r modulo process_count.
        process_count: Number of hosts, which share each batch evenly.

    Raises:
        ConfigError: if a field has a value that cannot be used.
        DataError: if the data is missing.
    """
    check_transforms(config)
    batch = host_batch("eval.batch_size", config.eval.batch_size, process_index, process_count)
    field = "data.eval_split" if split is None else "split"
    source = open_split(config.data, field, split or config.data.eval_split)
    check_classes(config, source.classes.num_classes)
    steps = -(-len(source) // config.eval.batch_size)
    unreadable = UnreadableImages()
    padded = _padded(config, source, steps * config.eval.batch_size, unreadable)
    dataset = to_batches(padded[process_index::process_count], config, batch)
    return EvalBatches(dataset, steps=steps, num_examples=len(source), unreadable=unreadable)


def _padded(
    config: ConfigDict, source: ImageSource, length: int, unreadable: UnreadableImages
) -> grain.MapDataset:
    """Return images with label and mask, padded to `length`."""
    transform = eval_transform(config)
    size, channels = config.model.image_size, config.model.channels
    nothing = {
        "image": np.zeros((size, size, channels), np.uint8),
        "label": np.int32(0),
        "mask": np.float32(0),
    }

    def load(index: int) -> Batch:
        if index >= len(source):
            return nothing
        try:
            image, label = source[index]
        except UnreadableImageError as error:
            unreadable.add(error, "left out of the evaluation")
            return nothing
        return {"image": transform(image), "label": np.int32(label), "mask": np.float32(1)}

    return grain.MapDataset.range(length).map(load)
