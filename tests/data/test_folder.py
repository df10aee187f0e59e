import numpy as np
import pytest
from PIL import Image

from mone.data import dataset_info, eval_batches, train_batches
from mone.data.folder import open_folder
from mone.errors import DataError


def test_folder_info_and_labels(folder_config):
    info = dataset_info(folder_config.data)
    assert (info.num_train, info.num_eval, info.num_classes) == (12, 7, 2)
    assert info.class_names == ("a", "b")
    source = open_folder(folder_config.data.path, "train", "train")
    for i in range(len(source)):
        image, label = source[i]
        assert (np.asarray(image)[0, 0, 0] > 150) == (label == 1)


def test_slices_of_a_folder_share_its_images(folder_config):
    folder_config.data.train_split = "train[:75%]"
    folder_config.data.eval_split = "train[75%:]"
    info = dataset_info(folder_config.data)
    assert (info.num_train, info.num_eval) == (9, 3)


def test_corrupt_file_is_masked_in_evaluation_named_and_counted(folder_config, caplog):
    batches = eval_batches(folder_config)
    for _ in range(2):
        seen = list(batches)
        assert len(seen) == len(batches) == 2
        assert sum(batch["mask"].sum() for batch in seen) == 6
        labels = np.concatenate([b["label"][b["mask"] > 0] for b in seen])
        assert sorted(labels) == [0, 0, 0, 1, 1, 1]
    assert len(batches.unreadable) == 1
    assert batches.unreadable[0].endswith("test/b/broken.JPEG")
    assert len(caplog.records) == 1
    assert "broken.JPEG" in caplog.text


def test_corrupt_file_is_replaced_in_training(folder_config, caplog):
    folder_config.data.train_split = "test"
    runs = []
    for _ in range(2):
        batches = train_batches(folder_config)
        runs.append([next(batches) for _ in range(7)])  # 4 epochs of 7 images
        assert [name.rsplit("/", 1)[1] for name in batches.unreadable] == ["broken.JPEG"]
        batches.close()
    for first, second in zip(*runs, strict=True):
        np.testing.assert_array_equal(first["image"], second["image"])
    counts = np.bincount(np.concatenate([batch["label"] for batch in runs[0]]))
    # 12 each, and 4 times the image after the broken one.
    assert sorted(counts) == [12, 16]
    assert "another takes its place" in caplog.text


def test_a_split_of_corrupt_files_stops_training(folder_config, tmp_path):
    for path in (tmp_path / "train").rglob("*.*"):
        path.write_bytes(b"no image")
    batches = train_batches(folder_config)
    with pytest.raises(DataError, match="12 images in a row cannot be read"):
        next(batches)
    batches.close()


def test_transparent_pixels_become_white(folder_config, tmp_path):
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(tmp_path / "test/a/clear.png")
    source = open_folder(str(tmp_path), "test", "test")
    pictures = [
        np.asarray(source[i][0]) for i in range(len(source)) if source._files[i][-9:] == "clear.png"
    ]
    assert pictures[0].shape == (8, 8, 3)
    assert (pictures[0] == 255).all()


def test_missing_folders_are_named(folder_config, tmp_path):
    (tmp_path / "test/zebra").mkdir()
    with pytest.raises(DataError, match="zebra"):
        dataset_info(folder_config.data)
    folder_config.data.path = str(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"data\.path=.*nowhere"):
        dataset_info(folder_config.data)
    folder_config.data.path = ""
    with pytest.raises(DataError, match=r"data\.path is empty"):
        dataset_info(folder_config.data)
