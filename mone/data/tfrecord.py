"""Sets stored as tfrecord: read as a stream with `tf.data`, in an order that can be resumed.

An epoch's order depends on (seed, epoch) only: the files in random order, 16 at a time in turns,
then a shuffle buffer. To resume, the epoch's records before the position are read again and
skipped, without decoding any; prefer array_record, which needs none of this, where reading is slow.
Each host reads its own part of the split, so that with another number of hosts the order is
another one.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import grain
import numpy as np

from mone.data.sources import Classes, Picture
from mone.errors import DataError

# Records, on each host: 16k ImageNet JPEGs are 2 GB.
SHUFFLE_BUFFER = 16384
_CYCLE = 16


@dataclass(frozen=True)
class RecordFile:
    """Records `skip` to `skip + take` of one file."""

    name: str
    skip: int
    take: int


@dataclass(frozen=True)
class Part:
    """A host's share of the records that a set consists of.

    Attributes:
        span: Positions in the split, among which the share lies.
        keep: bool [positions of the split], which records belong to the set; None: all.
        size: Records of the share.
    """

    span: range
    keep: np.ndarray | None
    size: int


def host_part(indices: np.ndarray, total: int, process_index: int, process_count: int) -> Part:
    """Return a host's share; shares differ in size by one record at most.

    Args:
        indices: int [m], ascending positions in the split of the records that are used.
        total: Records in the split.
        process_index: This host.
        process_count: Number of hosts.
    """
    low, high = (len(indices) * r // process_count for r in (process_index, process_index + 1))
    keep = None
    if len(indices) < total:
        keep = np.zeros(total, bool)
        keep[indices] = True
    span = range(indices[low], indices[high - 1] + 1) if low < high else range(0)
    return Part(span, keep, high - low)


@dataclass(frozen=True)
class TfrecordSplit:
    """A split stored as tfrecord.

    Attributes:
        files: Its parts, in order.
        parse: From a record and its position in the split to image and label; raises
            UnreadableImageError.
        classes: What the labels mean.
    """

    files: Sequence[RecordFile]
    parse: Callable[[bytes, int], tuple[Picture, int]]
    classes: Classes

    def __len__(self) -> int:
        return sum(file.take for file in self.files)

    def read(
        self,
        part: Part,
        *,
        order: tuple[int, ...] | None = None,
        skip: int = 0,
    ) -> Iterator[tuple[int, bytes]]:
        """Read records, with their positions in the split.

        Args:
            part: Which records to read.
            order: Seed of a random order; None: in order.
            skip: Leave out so many records at the beginning of that order.

        Raises:
            DataError: if a file is missing or damaged.
        """
        tf = _tensorflow()
        try:
            yield from _dataset(tf, self.files, part, order).skip(skip).as_numpy_iterator()
        except tf.errors.OpError as error:
            raise DataError(f"cannot read tfrecord files: {error.message}") from error


def _tensorflow():
    """Import TensorFlow quietly, and keep it off the accelerators."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # Its notice ignores the log level.
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    return tf


def _dataset(tf, files, part: Part, order):
    """Return a tf.data.Dataset of (position, record)."""
    pieces = _pieces(files, part.span)
    if order is not None:
        rng = np.random.default_rng(order)
        pieces = [pieces[i] for i in rng.permutation(len(pieces))]
    names, skips, takes, starts = zip(*pieces, strict=True)
    table = (list(names), np.int64(skips), np.int64(takes), np.int64(starts))

    def read(name, skip, take, start):
        return tf.data.TFRecordDataset(name).skip(skip).take(take).enumerate(start)

    dataset = tf.data.Dataset.from_tensor_slices(table)
    if order is None:
        dataset = dataset.flat_map(read)
    else:
        dataset = dataset.interleave(
            read, _CYCLE, block_length=1, num_parallel_calls=_CYCLE, deterministic=True
        )
    if part.keep is not None:
        mask = tf.constant(part.keep)
        dataset = dataset.filter(lambda position, record: mask[position])
    if order is not None:
        seed = int(rng.integers(2**31))
        dataset = dataset.shuffle(SHUFFLE_BUFFER, seed=seed, reshuffle_each_iteration=False)
    return dataset


def _pieces(files: Sequence[RecordFile], span: range) -> list[tuple[str, int, int, int]]:
    """Cut positions out of the files: (name, skip, take, position of the first)."""
    pieces, start = [], 0
    for file in files:
        low, high = max(span.start, start), min(span.stop, start + file.take)
        if low < high:
            pieces.append((file.name, file.skip + low - start, high - low, low))
        start += file.take
    return pieces


Records = list[tuple[int, bytes]]


class RecordBatches(grain.IterDataset):
    """Batches of raw records: (number of the batch, [(position in the split, record), ...]).

    Args:
        split: The split.
        part: This host's share of it.
        batch: Records a batch.
        seed: Endless epochs in random order; None: once, in order.
        steps: If in order: so many batches, the last ones short or empty.
    """

    def __init__(
        self,
        split: TfrecordSplit,
        part: Part,
        batch: int,
        *,
        seed: int | None = None,
        steps: int = 0,
    ):
        super().__init__()
        self.split, self.part, self.batch = split, part, batch
        self.seed, self.steps = seed, steps

    def __iter__(self) -> "RecordIterator":
        return RecordIterator(self)


class RecordIterator(grain.DatasetIterator):
    """Iterator of `RecordBatches`; its state is the number of the next batch."""

    def __init__(self, batches: RecordBatches):
        super().__init__()
        self._batches = batches
        self._step = 0
        self._records: Iterator[tuple[int, bytes]] | None = None

    def __next__(self) -> tuple[int, Records]:
        batches = self._batches
        if batches.seed is None and self._step == batches.steps:
            raise StopIteration
        first = self._step * batches.batch
        stop = first + batches.batch
        if batches.seed is None:
            stop = min(stop, batches.part.size)
        records = [self._read(index) for index in range(first, stop)]
        self._step += 1
        return self._step - 1, records

    def _read(self, index: int) -> tuple[int, bytes]:
        """Return record number `index` of the stream, the one after the last one read."""
        batches = self._batches
        epoch, offset = divmod(index, batches.part.size)
        if offset == 0 or self._records is None:
            order = None if batches.seed is None else (batches.seed, epoch, batches.part.span.start)
            self._records = batches.split.read(batches.part, order=order, skip=offset)
        try:
            return next(self._records)
        except StopIteration:
            raise DataError(
                f"{batches.split.classes.source}: the files hold fewer records than "
                "dataset_info.json states"
            ) from None

    def get_state(self) -> dict[str, int]:
        """Return the number of the next batch."""
        return {"next_index": self._step}

    def set_state(self, state: dict[str, int]) -> None:
        """Go on with that batch."""
        self._step = state["next_index"]
        self._records = None
