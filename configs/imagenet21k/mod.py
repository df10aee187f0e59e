"""Mixture-of-Depths on ImageNet-21k, from scratch: 12.5 % of the tokens in every second block.

    mone train --config=imagenet21k/mod:S/16 --workdir=DIR

Hardware: a TPU or GPU pod slice (batch 4096, bfloat16); hours are not published.
Cost: Ti/16 .71, S/16 2.58, B/16 9.8, L/16 34.4 GMAC an image (`mone cost`); 300 epochs.
Training, EFLOP (300 epochs, 3 forwards a step): Ti/16 18.0, S/16 65.7, B/16 250, L/16 875.
Expect: MoNE's paper (arXiv 2407.19985) plots ImageNet-21k as curves, without a table.

Data: the 21,843-class ImageNet-21k is not among the public TFDS builders. Prepare it under the
name `imagenet21k` with one split, `full` (the recipe evaluates on images 25,600 to 51,200 and
trains on those after), or read folders: `--config.data.source=folder --config.data.path=DIR
--config.data.train_split=train --config.data.eval_split=val`.
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "Ti/16") -> ConfigDict:
    """Return the configuration.

    Args:
      arg: `SIZE/PATCH[,every=BLOCKS][,e_c=SHARE]`, SIZE one of Ti, S, B, L; e_c, the share of
        full blocks a token passes: 0 adaptive, negative 12.5 % of the tokens in routed blocks.
    """
    a = parse(arg, variant="Ti/16", every=2, e_c=-1.0)
    return methods.mod(tasks.imagenet21k(a.variant), every=a.every, e_c=a.e_c)
