"""MatViT on Fashion-MNIST: the losses of all widths summed.

    mone train --config=fashion_mnist/matvit --workdir=DIR

Hardware: 2 CPU cores.
Cost: 3.49, 5.52, 9.59, 17.7 MMAC an image at D/8, D/4, D/2, D.
Expect: no published figure at this size.

Data: Fashion-MNIST, IDX files (Debian `dataset-fashion-mnist`); all 60,000 training images,
once, and all 10,000 test images.
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "") -> ConfigDict:
    """Return the configuration; `arg`: `experts=E`."""
    a = parse(arg, experts=4)
    return methods.matvit(tasks.fashion_mnist(), experts=a.experts)
