"""Mixture-of-Depths on Fashion-MNIST: one model for several budgets.

    mone train --config=fashion_mnist/mod --workdir=DIR

Hardware: 2 CPU cores.
Cost, MMAC an image at a share of full blocks of .2, .3, .4, .5, .6, .8, 1: 3.47, 5.20, 6.96, 8.38,
10.2, 13.9, 17.7.
Expect: no published figure at this size.

Data: Fashion-MNIST, IDX files (Debian `dataset-fashion-mnist`); all 60,000 training images,
once, and all 10,000 test images.
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "") -> ConfigDict:
    """Return the configuration; `arg`: `every=BLOCKS,e_c=SHARE`, e_c 0: adaptive."""
    a = parse(arg, every=1, e_c=0.0)
    return methods.mod(tasks.fashion_mnist(), every=a.every, e_c=a.e_c)
