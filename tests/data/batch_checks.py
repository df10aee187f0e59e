"""What tests read off batches."""

import numpy as np


def pixel_ids(batch) -> list[int]:
    """Numbers of the images of `idx_config`, from their normalised first pixel."""
    return np.rint((batch["image"][:, 0, 0, 0] * 0.5 + 0.5) * 255).astype(int).tolist()


def assert_same(first, second):
    """Check two lists of batches for equality, bit for bit."""
    for a, b in zip(first, second, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])
