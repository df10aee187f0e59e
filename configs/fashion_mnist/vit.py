"""ViT on Fashion-MNIST.

    mone train --config=fashion_mnist/vit --workdir=DIR

Hardware: 2 CPU cores.
Cost: 17.7 MMAC an image.
Expect: no published figure at this size.

Data: Fashion-MNIST, IDX files (Debian `dataset-fashion-mnist`); all 60,000 training images,
once, and all 10,000 test images.
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "") -> ConfigDict:
    """Return the configuration; `arg`: there are no options."""
    parse(arg)
    return methods.dense(tasks.fashion_mnist())
