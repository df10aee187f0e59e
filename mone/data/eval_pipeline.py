"""Every image of a split once, over all hosts, in batches of one size.

Axes: B images of this host's batch, H W C image.
"""

from collections.abc import Callable, Iterator

import grain
import numpy as np
from ml_collections import ConfigDict

from mone.data.batching import Batch, Batches, batches_of_images, batches_of_records
from mone.data.datasets import check_classes, host_batch, open_split
from mone.data.sources import Picture, UnreadableImageError, UnreadableImages
from mone.data.tfrecord import RecordBatches, Records, TfrecordSplit, host_part
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
        batches = Batches(self._dataset)
        try:
            for batch in batches:  # noqa: UP028 `yield from` would hold on to it at exit.
                yield batch
        finally:
            batches.close()

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
        process_index: This host, 0 .. process_count - 1.
        process_count: Number of hosts, which share the split and each batch evenly.

    Raises:
        ConfigError: if a field has a value that cannot be used.
        DataError: if the data is missing.
    """
    check_transforms(config)
    size = config.eval.batch_size
    batch = host_batch("eval.batch_size", size, process_index, process_count)
    field = "data.eval_split" if split is None else "split"
    source = open_split(config.data, field, config.data.eval_split if split is None else split)
    check_classes(config, source.classes.num_classes)
    steps = -(-len(source) // size)
    unreadable = UnreadableImages()
    load = _loader(config, unreadable)
    if isinstance(source, TfrecordSplit):
        part = host_part(np.arange(len(source)), len(source), process_index, process_count)
        records = RecordBatches(source, part, batch, steps=steps)
        dataset = batches_of_records(records, config, _record_loader(source, batch, load))
    else:

        def load_or_pad(index: int) -> Batch:
            return load((lambda: source[index]) if index < len(source) else None)

        padded = grain.MapDataset.range(steps * size)[process_index::process_count]
        dataset = batches_of_images(padded.map(load_or_pad), config, batch)
    return EvalBatches(dataset, steps=steps, num_examples=len(source), unreadable=unreadable)


Read = Callable[[], tuple[Picture, int]]


def _loader(config: ConfigDict, unreadable: UnreadableImages) -> Callable[[Read | None], Batch]:
    """Return a function that reads and transforms one image, or makes padding (None)."""
    transform = eval_transform(config)
    size, channels = config.model.image_size, config.model.channels
    nothing = {
        "image": np.zeros((size, size, channels), np.uint8),
        "label": np.int32(0),
        "mask": np.float32(0),
    }

    def load(read: Read | None) -> Batch:
        if read is None:
            return nothing
        try:
            image, label = read()
        except UnreadableImageError as error:
            unreadable.add(error, "left out of the evaluation")
            return nothing
        return {"image": transform(image), "label": np.int32(label), "mask": np.float32(1)}

    return load


def _record_loader(
    split: TfrecordSplit, batch: int, load: Callable[[Read | None], Batch]
) -> Callable[[int, Records], list[Callable[[], Batch]]]:
    """Return what makes the images of a batch of records, padded to `batch`."""

    def jobs(step: int, records: Records) -> list[Callable[[], Batch]]:
        reads: list[Read | None] = [
            lambda position=position, record=record: split.parse(record, position)
            for position, record in records
        ]
        reads += [None] * (batch - len(reads))
        return [lambda read=read: load(read) for read in reads]

    return jobs
