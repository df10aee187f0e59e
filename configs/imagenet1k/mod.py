"""Mixture-of-Depths on ImageNet-1k: from scratch, or fine-tuned.

    mone train --config=imagenet1k/mod:S/16 --workdir=DIR                # AugReg, 300 epochs
    mone train --config=imagenet1k/mod:S/16,recipe=plain --workdir=DIR   # 90 epochs
    mone train --config=imagenet1k/mod:S/16,init=DIR21K --workdir=DIR    # fine-tune at 384

Hardware: as `imagenet1k/vit`; hours are not published.
Cost: Ti/16 .70, S/16 2.57, B/16 9.8, L/16 34.3 GMAC an image (`mone cost`).
Training, EFLOP (300 epochs, 3 forwards a step): Ti/16 1.61, S/16 5.88, B/16 22.4, L/16 78.4.
Expect: no figure known to us for this recipe.

Data: TFDS `imagenet2012`; trains on 99 % of `train`, evaluates on `validation` (50,000 images).
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "Ti/16") -> ConfigDict:
    """Return the configuration.

    Args:
      arg: `SIZE/PATCH[,recipe=augreg|plain][,init=DIR][,every=BLOCKS][,e_c=BUDGET]`.
        SIZE: Ti, S, B or L; init: fine-tune the ImageNet-21k run in DIR at 384 pixels.
        every: one block in this many is routed; e_c, the share of full blocks a token passes:
        0 adaptive, negative 12.5 % of the tokens in routed blocks.
    """
    a = parse(arg, variant="Ti/16", recipe="augreg", init="", every=2, e_c=-1.0)
    return methods.mod(tasks.imagenet1k(a.variant, a.recipe, a.init), every=a.every, e_c=a.e_c)
