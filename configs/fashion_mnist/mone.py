"""MoNE on Fashion-MNIST: one model for every budget.

    mone train --config=fashion_mnist/mone --workdir=DIR

Hardware: 2 CPU cores.
Cost, MMAC an image at e_c .2, .3, .4, .5, .6, .8, 1: 4.63, 6.12, 7.74, 9.52, 11.1,
14.3, 17.7.
Expect: no published figure at this size.

Data: Fashion-MNIST, IDX files (Debian `dataset-fashion-mnist`); all 60,000 training images,
once, and all 10,000 test images.
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "") -> ConfigDict:
    """Return the configuration.

    Args:
      arg: `experts=E,e_c=BUDGET,recipe=single|paper|sandwich`; e_c 0: adaptive.
    """
    a = parse(arg, experts=4, e_c=0.0, recipe="single")
    return methods.mone(tasks.fashion_mnist(), experts=a.experts, e_c=a.e_c, recipe=a.recipe)
