"""Mixture-of-Depths on 20,000 images of Fashion-MNIST: one model for several budgets.

    mone train --config=fashion_mnist/mod --workdir=DIR

Hardware: 2 CPU cores.
Cost: 24.6, 32.4, 41.1 MMAC an image at a share of full blocks of .6, .8, 1.
Expect: no published figure at this size.

Data: Fashion-MNIST, IDX files (Debian `dataset-fashion-mnist`); a fixed draw of 20,000 of the
60,000 training images, all 10,000 test images.
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "") -> ConfigDict:
    """Return the configuration; `arg`: `every=BLOCKS,e_c=SHARE`, e_c 0: adaptive."""
    a = parse(arg, every=2, e_c=0.0)
    return methods.mod(tasks.fashion_mnist(), every=a.every, e_c=a.e_c)
