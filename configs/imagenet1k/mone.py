"""MoNE on ImageNet-1k: from scratch, or fine-tuned; one model for every budget, or a fixed one.

    mone train --config=imagenet1k/mone:S/16 --workdir=DIR                # AugReg, 300 epochs
    mone train --config=imagenet1k/mone:S/16,recipe=plain --workdir=DIR   # 90 epochs
    mone train --config=imagenet1k/mone:S/16,init=DIR21K --workdir=DIR    # fine-tune at 384
    mone train --config=imagenet1k/mone:Ti/16,e_c=0.57 --workdir=DIR       # one budget

Hardware: as `imagenet1k/vit`; hours are not published.
Cost, GMAC an image at e_c .2, .4, .6, .8, 1: Ti/16 .41, .62, .83, 1.04, 1.25; S/16 1.24, 2.06,
2.89, 3.73, 4.57; B/16 4.1, 7.4, 10.7, 14.1, 17.5; L/16 13.8, 25.5, 37.3, 49.2, 61.2 (`mone cost`).
Training, EFLOP (adaptive, 300 epochs, 3 forwards a step):
Ti/16 1.77, S/16 6.14, B/16 22.7, L/16 78.6.
Expect: Ti/16 at 0.8 GMAC (e_c .57 by our count) 71.4 % top-1 beside 71.3 of ViT-Ti/16, in the
comparison with A-ViT of MoNE's paper (arXiv 2407.19985), whose recipe may be another; no figure
is published for other sizes.

Data: TFDS `imagenet2012`; trains on 99 % of `train`, evaluates on `validation` (50,000 images).
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "Ti/16") -> ConfigDict:
    """Return the configuration.

    Args:
      arg: `SIZE/PATCH[,recipe=augreg|plain][,init=DIR][,experts=E][,e_c=BUDGET]`.
        SIZE: Ti, S, B or L; init: fine-tune the ImageNet-21k run in DIR at 384 pixels.
        experts: E, widths halve from D downwards; e_c: the one budget, 0: adaptive.
    """
    a = parse(arg, variant="Ti/16", recipe="augreg", init="", experts=4, e_c=0.0)
    return methods.mone(tasks.imagenet1k(a.variant, a.recipe, a.init), experts=a.experts, e_c=a.e_c)
