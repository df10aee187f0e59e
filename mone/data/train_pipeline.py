"""Endless training batches, exactly resumable.

The images form one global stream, the same for any number of hosts and threads: a fresh
permutation of the training set an epoch, epochs following each other without a gap (a batch may
span two). Image number p of the stream is augmented with a generator keyed by the seed and p.
Step t takes images t * batch_size ... of the stream, and host r of R every R-th of these.
(tfrecord sets differ: see `mone.data.tfrecord`.)

Axes: B images of this host's batch, H W C image.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grain
import numpy as np
from ml_collections import ConfigDict

from mone.data.batching import Batch, Batches, batches_of_images, batches_of_records
from mone.data.datasets import check_classes, host_batch, open_split
from mone.data.sources import (
    ImageSource,
    Picture,
    Subset,
    UnreadableImages,
    read_or_next,
    subset_indices,
)
from mone.data.tfrecord import RecordBatches, Records, TfrecordSplit, host_part
from mone.data.transforms import check_transforms, train_transform
from mone.errors import ConfigError, DataError


class TrainBatches(Iterator[Batch]):
    """Endless iterator over training batches; made by `train_batches`.

    Attributes:
        steps_per_epoch: Whole batches in the training set, the same on every host.
        num_train: Images in the training set.
    """

    def __init__(
        self,
        dataset: grain.IterDataset,
        *,
        identity: Mapping[str, int],
        unreadable: UnreadableImages,
    ):
        self.num_train = identity["num_train"]
        self.steps_per_epoch = self.num_train // identity["batch_size"]
        self._identity = dict(identity)
        self._unreadable = unreadable
        self._batches = Batches(dataset)

    def __next__(self) -> Batch:
        """Return `image`: float32 [B, H, W, C], normalised, and `label`: int32 [B]."""
        return next(self._batches)

    def get_state(self) -> dict[str, int]:
        """Return the position after the last batch returned; JSON, and the same on every host."""
        return {**self._identity, "step": self._batches.step}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on with exactly the batch that follows the position.

        Raises:
            DataError: if the state was written for another order of the images.
        """
        for field, value in self._identity.items():
            if state.get(field) != value:
                raise DataError(
                    f"the data position was saved with {field}={state.get(field)}, this run has "
                    f"{field}={value}: the order of the images would not be the same"
                )
        self._batches.step = int(state["step"])

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Images that this host could not read so far, each named once."""
        return self._unreadable.names

    def close(self) -> None:
        """Stop the threads; the iterator cannot be used afterwards."""
        self._batches.close()


def train_batches(
    config: ConfigDict, *, process_index: int = 0, process_count: int = 1
) -> TrainBatches:
    """Open the training data.

    An unreadable image is named once in a warning (logger `mone.data`), listed in `unreadable`,
    and replaced by the next readable one of the set (tfrecord: of its batch).

    Args:
        config: Fields seed, batch_size, data.*, model.image_size, model.channels,
            model.num_classes.
        process_index: This host, 0 .. process_count - 1.
        process_count: Number of hosts, which share each batch evenly.

    Raises:
        ConfigError: if a field has a value that cannot be used.
        DataError: if the data is missing.
    """
    check_transforms(config)
    batch = host_batch("batch_size", config.batch_size, process_index, process_count)
    source = open_split(config.data, "data.train_split", config.data.train_split)
    check_classes(config, source.classes.num_classes)
    indices = subset_indices(len(source), config.data.num_train, config.data.subset_seed)
    if config.batch_size > len(indices):
        raise ConfigError(
            f"batch_size={config.batch_size}: valid: at most the {len(indices)} training images"
        )
    unreadable = UnreadableImages()
    identity = {"seed": config.seed, "batch_size": config.batch_size, "num_train": len(indices)}
    if isinstance(source, TfrecordSplit):
        part = host_part(indices, len(source), process_index, process_count)
        records = RecordBatches(source, part, batch, seed=config.seed)
        identity["process_count"] = process_count
        dataset = batches_of_records(records, config, _record_loader(config, source, unreadable))
    else:
        chosen = Subset(source, indices) if len(indices) < len(source) else source
        stream = _stream(config, chosen, unreadable)[process_index::process_count]
        dataset = batches_of_images(stream, config, batch)
    return TrainBatches(dataset, identity=identity, unreadable=unreadable)


def _stream(
    config: ConfigDict, source: ImageSource, unreadable: UnreadableImages
) -> grain.MapDataset:
    """Return the global stream of augmented images, uint8, with their labels."""
    transform = train_transform(config)

    def load(index: int, rng: np.random.Generator) -> Batch:
        image, label = read_or_next(lambda i: source[i], index, len(source), unreadable)
        return {"image": transform(image, rng), "label": np.int32(label)}

    # The shuffle is a pseudo-random permutation computed index by index, with another key an
    # epoch; random_map keys its generator by the position in the stream.
    order = grain.MapDataset.range(len(source)).seed(config.seed).shuffle().repeat()
    return order.random_map(load)


def _record_loader(
    config: ConfigDict, split: TfrecordSplit, unreadable: UnreadableImages
) -> Callable[[int, Records], list[Callable[[], Batch]]]:
    """Return what makes the images of a batch of records; each has a generator of its own."""
    transform = train_transform(config)

    def load(step: int, records: Records) -> list[Callable[[], Batch]]:
        def parse(index: int) -> tuple[Picture, int]:
            position, record = records[index]
            return split.parse(record, position)

        def job(index: int) -> Batch:
            image, label = read_or_next(parse, index, len(records), unreadable)
            rng = np.random.default_rng((config.seed, step, records[index][0]))
            return {"image": transform(image, rng), "label": np.int32(label)}

        return [lambda index=index: job(index) for index in range(len(records))]

    return load
