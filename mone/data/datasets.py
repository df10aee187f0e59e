"""From `config.data` to an open split, and what is known about the set."""

from dataclasses import dataclass

from ml_collections import ConfigDict

from mone.data import embedded, folder, idx, tfds_sets
from mone.data.folder import FolderSource
from mone.data.sources import (
    ArraySource,
    ImageSource,
    parse_split,
    slice_bounds,
    subset_indices,
)
from mone.data.tfrecord import TfrecordSplit
from mone.errors import ConfigError, DataError

SOURCES = ("embedded", "idx", "folder", "tfds")


@dataclass(frozen=True)
class DatasetInfo:
    """A data set as a configuration uses it.

    Attributes:
        num_train: Training images, after data.num_train.
        num_eval: Images of data.eval_split.
        num_classes: Labels are 0 .. num_classes - 1.
        image_shape: (H, W, C) as stored if all images have the same, else None.
        class_names: Name of each class, or None if the set has none.
        source: For humans: what the set is and where it was found.
    """

    num_train: int
    num_eval: int
    num_classes: int
    image_shape: tuple[int, int, int] | None
    class_names: tuple[str, ...] | None
    source: str


def dataset_info(data: ConfigDict) -> DatasetInfo:
    """Describe the data set of `config.data`; reads no image.

    Raises:
        ConfigError: if a field has a value that does not exist.
        DataError: if the data is missing or unreadable, and how to get it.
    """
    train = open_split(data, "data.train_split", data.train_split)
    evaluation = open_split(data, "data.eval_split", data.eval_split)
    classes = train.classes
    return DatasetInfo(
        num_train=len(subset_indices(len(train), data.num_train, data.subset_seed)),
        num_eval=len(evaluation),
        num_classes=classes.num_classes,
        image_shape=classes.image_shape,
        class_names=classes.names,
        source=classes.source,
    )


def open_split(data: ConfigDict, field: str, split: str) -> ImageSource | TfrecordSplit:
    """Open a split of `config.data`.

    Args:
        data: The section `config.data`.
        field: Where `split` comes from, for errors.
        split: Name of the split, or a slice of it such as `train[:90%]`.

    Raises:
        ConfigError: if source or split does not exist.
        DataError: if the data is missing or unreadable.
    """
    match data.source:
        case "embedded":
            name, part = parse_split(field, split, embedded.SPLITS)
            source = _part(embedded.open_embedded(name), part)
        case "idx":
            name, part = parse_split(field, split, idx.SPLITS)
            source = _part(idx.open_idx(data.path, name), part)
        case "folder":
            name, part = parse_split(field, split, folder.split_names(data.path))
            train, _ = parse_split(
                "data.train_split", data.train_split, folder.split_names(data.path)
            )
            source = _part(folder.open_folder(data.path, name, train), part)
        case "tfds":
            source = tfds_sets.open_tfds(data.name, data.path, field, split)
        case _:
            raise ConfigError(f"data.source={data.source!r}: valid: {', '.join(SOURCES)}")
    if not len(source):
        raise DataError(f"{field}={split!r} of {source.classes.source} has no images")
    return source


def _part(source: ArraySource | FolderSource, part: slice) -> ArraySource | FolderSource:
    return source.slice(*slice_bounds(part, len(source)))


def check_classes(config: ConfigDict, num_classes: int) -> None:
    """Check that the model has an output for every label.

    Raises:
        ConfigError: if it has fewer outputs than the data has classes.
    """
    if config.model.num_classes < num_classes:
        raise ConfigError(
            f"model.num_classes={config.model.num_classes}: the data has {num_classes} classes"
        )


def host_batch(field: str, batch_size: int, process_index: int, process_count: int) -> int:
    """Return this host's share of a batch.

    Raises:
        ConfigError: if the hosts cannot share it evenly.
    """
    if not 0 <= process_index < process_count:
        raise ValueError(f"process_index={process_index}, process_count={process_count}")
    if batch_size <= 0 or batch_size % process_count:
        raise ConfigError(
            f"{field}={batch_size}: valid: positive multiples of the number of hosts, "
            f"{process_count}"
        )
    return batch_size // process_count
