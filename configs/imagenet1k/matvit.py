"""MatViT on ImageNet-1k: the losses of all widths summed; from scratch, or fine-tuned.

    mone train --config=imagenet1k/matvit:S/16 --workdir=DIR                # AugReg, 300 epochs
    mone train --config=imagenet1k/matvit:S/16,recipe=plain --workdir=DIR   # 90 epochs
    mone train --config=imagenet1k/matvit:S/16,init=DIR21K --workdir=DIR    # fine-tune at 384

Hardware: as `imagenet1k/vit`; a training step costs the sum of the widths, 2.0 (B/16) dense steps.
Cost, GMAC an image at D/8, D/4, D/2, D: Ti/16 .34, .47, .73, 1.25; S/16 .93, 1.45, 2.49, 4.57;
B/16 2.9, 5.0, 9.2, 17.5; L/16 9.4, 16.8, 31.6, 61.2.
Training, EFLOP (300 epochs, 3 forwards a step): Ti/16 6.34, S/16 21.6, B/16 78.8, L/16 272.
Expect: no figure known to us for this recipe.

Data: TFDS `imagenet2012`; trains on 99 % of `train`, evaluates on `validation` (50,000 images).
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "Ti/16") -> ConfigDict:
    """Return the configuration.

    Args:
      arg: `SIZE/PATCH[,recipe=augreg|plain][,init=DIR][,experts=E]`.
        SIZE: Ti, S, B or L; init: fine-tune the ImageNet-21k run in DIR at 384 pixels.
        experts: E, widths halve from D downwards.
    """
    a = parse(arg, variant="Ti/16", recipe="augreg", init="", experts=4)
    return methods.matvit(tasks.imagenet1k(a.variant, a.recipe, a.init), experts=a.experts)
