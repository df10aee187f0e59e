"""From single images to normalised batches, prepared ahead by threads.

Axes: B images of this host's batch, H W C image.
"""

import functools
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grain
import numpy as np
from ml_collections import ConfigDict

from mone.data.images import normalise
from mone.data.tfrecord import Records

Batch = dict[str, np.ndarray]


class Batches(Iterator[Batch]):
    """A grain iterator whose threads stop when it is closed, dropped, or the program ends.

    At exit grain's own clean-up comes when its modules are gone, and prints tracebacks.

    Args:
        dataset: What to iterate over.
    """

    def __init__(self, dataset: grain.IterDataset):
        self._held = [iter(dataset)]
        self._finalizer = weakref.finalize(self, _close, self._held)

    def __next__(self) -> Batch:
        return next(self._iterator)

    @property
    def _iterator(self) -> grain.DatasetIterator:
        if not self._held:
            raise ValueError("the data iterator has been closed")
        return self._held[0]

    @property
    def step(self) -> int:
        """Number of the next batch."""
        return self._iterator.get_state()["next_index"]

    @step.setter
    def step(self, step: int) -> None:
        self._iterator.set_state({"next_index": step})

    def close(self) -> None:
        """Stop the threads."""
        self._finalizer()


def _close(held: list[grain.DatasetIterator]) -> None:
    held.pop().close()


def batches_of_images(
    dataset: grain.MapDataset, config: ConfigDict, batch: int
) -> grain.IterDataset:
    """Batch and normalise images that can be read in any order; one thread prepares one batch.

    Args:
        dataset: Of dicts with `image`, uint8 [H, W, C].
        config: Fields data.mean, std, threads, prefetch.
        batch: B.
    """
    data = config.data
    dataset = dataset.batch(batch, drop_remainder=True).map(_normaliser(config))
    buffer = max(data.prefetch, data.threads)
    return dataset.to_iter_dataset(grain.ReadOptions(data.threads, buffer))


def batches_of_records(
    dataset: grain.IterDataset,
    config: ConfigDict,
    load: Callable[[int, Records], list[Callable[[], Batch]]],
) -> grain.IterDataset:
    """Decode, batch and normalise a stream of records; the threads share each batch.

    Args:
        dataset: Of (number of the batch, records).
        config: Fields data.mean, std, threads, prefetch.
        load: From the number of the batch and its records to one function an image, that may be
            called on any thread.
    """
    data = config.data
    pool = ThreadPoolExecutor(data.threads, "mone-decode") if data.threads else None
    scale = _normaliser(config)

    def prepare(item: tuple[int, Records]) -> Batch:
        jobs = load(*item)
        run = pool.map if pool else map
        images = list(run(lambda job: job(), jobs))
        return scale({key: np.stack([image[key] for image in images]) for key in images[0]})

    return grain.experimental.ThreadPrefetchIterDataset(
        dataset.map(prepare), prefetch_buffer_size=data.prefetch if data.threads else 0
    )


def _normaliser(config: ConfigDict) -> Callable[[Batch], Batch]:
    return functools.partial(
        _normalise_batch, mean=tuple(config.data.mean), std=tuple(config.data.std)
    )


def _normalise_batch(batch: Batch, mean: tuple[float, ...], std: tuple[float, ...]) -> Batch:
    return {**batch, "image": normalise(batch["image"], mean, std)}
