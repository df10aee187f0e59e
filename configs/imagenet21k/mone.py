"""MoNE on ImageNet-21k, from scratch: one model for every budget, or a fixed one.

    mone train --config=imagenet21k/mone:S/16 --workdir=DIR            # adaptive
    mone train --config=imagenet21k/mone:S/16,e_c=0.4 --workdir=DIR    # one budget

Hardware: a TPU or GPU pod slice (batch 4096, bfloat16); hours are not published.
Cost, GMAC an image at e_c .2, .4, .6, .8, 1: Ti/16 .42, .62, .83, 1.04, 1.25; S/16 1.25, 2.07,
2.90, 3.74, 4.58; B/16 4.1, 7.4, 10.8, 14.1, 17.5; L/16 13.8, 25.5, 37.3, 49.2, 61.3 (`mone cost`).
Same epochs as ViT, 300; the paper's iso-FLOPs variant trains longer until the training FLOPs are
those of ViT: multiply `num_epochs` by dense MACs / MACs at the budget.
Training, EFLOP (adaptive, 300 epochs, 3 forwards a step):
Ti/16 19.8, S/16 68.7, B/16 253, L/16 877.
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
      arg: `SIZE/PATCH[,experts=E][,e_c=BUDGET]`, SIZE one of Ti, S, B, L; e_c 0: adaptive.
    """
    a = parse(arg, variant="Ti/16", experts=4, e_c=0.0)
    return methods.mone(tasks.imagenet21k(a.variant), experts=a.experts, e_c=a.e_c)
