"""Image sets in the format of TensorFlow Datasets, with the features `image` and `label`.

Sets stored as array_record are read image by image in any order, those stored as tfrecord as a
stream (`mone.data.tfrecord`). Neither parsing nor decoding needs TensorFlow.
"""

import os
from typing import Any

from PIL import Image

from mone.data.images import decode
from mone.data.sources import Classes
from mone.data.tfrecord import RecordFile, TfrecordSplit
from mone.errors import ConfigError, DataError


class RecordParser:
    """From one serialised example to image and label; other features are not looked at.

    Args:
        features: The set's features.
        name: Of the set, for errors.
    """

    def __init__(self, features: Any, name: str):
        import tensorflow_datasets as tfds

        self._features = tfds.features.FeaturesDict(
            {key: features[key] for key in ("image", "label")}
        )
        self._decoders = {"image": tfds.decode.SkipDecoding()}
        self._name = name

    def __call__(self, record: bytes, index: int) -> tuple[Image.Image, int]:
        """Parse and decode record number `index`; raises UnreadableImageError."""
        example = self._features.deserialize_example_np(record, decoders=self._decoders)
        return decode(example["image"], f"{self._name}, record {index}"), int(example["label"])


class TfdsSource:
    """A split stored as array_record.

    Args:
        records: Serialised examples, by index.
        parse: Their parser.
        classes: What the labels mean.
    """

    def __init__(self, records: Any, parse: RecordParser, classes: Classes):
        self.classes = classes
        self._records = records
        self._parse = parse

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return self._parse(self._records[index], index)


def open_tfds(name: str, path: str, field: str, split: str) -> TfdsSource | TfrecordSplit:
    """Open a split of a TFDS set.

    Args:
        name: The set, with config and version if wanted: "imagenet2012", "x/config:1.2.0". "": the
            set is in `path` itself.
        path: Directory of all TFDS data ("": TFDS's default), or the directory of this set's
            version, that holds dataset_info.json.
        field: Where `split` comes from, for errors.
        split: TFDS split, slices such as `train[:90%]` included.

    Raises:
        ConfigError: if the set has no such split.
        DataError: if the set is missing, or has no features `image` and `label`.
    """
    import tensorflow_datasets as tfds

    builder = _builder(name, path)
    info = builder.info
    classes = _classes(info, str(builder.data_dir))
    try:
        files = info.splits[split].file_instructions
    except ValueError as error:
        raise ConfigError(
            f"{field}={split!r}: valid: {', '.join(info.splits)}, and slices of these such as "
            f"{next(iter(info.splits))}[:90%]"
        ) from error
    parse = RecordParser(info.features, f"{info.full_name} {split}")
    formats = {file_format.value for file_format in info.available_file_formats()}
    if "array_record" in formats:
        raw = tfds.decode.DeserializeMethod.RAW_BYTES
        records = builder.as_data_source(split, deserialize_method=raw, file_format="array_record")
        return TfdsSource(records, parse, classes)
    if "tfrecord" in formats:
        parts = [RecordFile(os.fspath(f.filename), f.skip, f.take) for f in files]
        return TfrecordSplit(parts, parse, classes)
    raise DataError(
        f"{builder.data_dir} is stored as {', '.join(sorted(formats))}; "
        "valid: array_record, tfrecord"
    )


def _builder(name: str, path: str) -> Any:
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import read_only_builder

    try:
        if path and os.path.isfile(os.path.join(path, "dataset_info.json")):
            return tfds.builder_from_directory(path)
        if name:
            return read_only_builder.builder_from_files(name, data_dir=path or None)
    except Exception as error:  # TFDS raises a type of its own for each kind of damage.
        where = path or "TFDS's default directory"
        raise DataError(
            f"no TFDS set {name!r} in {where}. Prepare it with `tfds build {name} "
            f"--file_format=array_record{f' --data_dir={path}' if path else ''}`, "
            f"or name its place in data.path ({str(error).splitlines()[0]})"
        ) from error
    raise DataError(
        f"data.path={path!r} holds no dataset_info.json and data.name is empty: set data.name to "
        "the TFDS set, or data.path to the directory of its version"
    )


def _classes(info: Any, directory: str) -> Classes:
    import tensorflow_datasets as tfds

    features = info.features
    image, label = (dict(features.items()).get(key) for key in ("image", "label"))
    if not isinstance(image, tfds.features.Image) or not isinstance(
        label, tfds.features.ClassLabel
    ):
        raise DataError(
            f"{directory}: needs the features image (Image) and label (ClassLabel), "
            f"has {', '.join(f'{key} ({type(features[key]).__name__})' for key in features)}"
        )
    shape = None if None in image.shape else tuple(image.shape)
    # Without names, TFDS's `names` are the numbers.
    names = tuple(label.names)
    named = names != tuple(str(number) for number in range(label.num_classes))
    source = f"TFDS {info.full_name} in {directory}"
    return Classes(label.num_classes, names if named else None, shape, source)
