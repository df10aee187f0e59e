"""ViT on ImageNet-1k: from scratch, or fine-tuned from ImageNet-21k.

    mone train --config=imagenet1k/vit:S/16 --workdir=DIR                # AugReg, 300 epochs
    mone train --config=imagenet1k/vit:S/16,recipe=plain --workdir=DIR   # 90 epochs
    mone train --config=imagenet1k/vit:S/16,init=DIR21K --workdir=DIR    # fine-tune at 384

Hardware and cost: S/16 `plain` takes 6 to 7 h for 90 epochs on a TPU v3-8 (big_vision,
vit_s16_i1k); hours of the AugReg runs are not published. Ti/16 1.25, S/16 4.57, B/16 17.5, L/16
61.2 GMAC an image at 224 pixels.
Training, EFLOP (300 epochs, 3 forwards a step): Ti/16 2.85, S/16 10.4, B/16 39.9, L/16 140.
Expect: S/16 `plain` 76.5 % top-1 in 90 epochs and 80 % in 300 (`--config.num_epochs=300`; arXiv
2205.01580); fine-tuned at 384 pixels Ti/16 78.22, S/16 83.73, B/16 85.49, L/16 85.59
(google-research/vision_transformer, README); Ti/16 71.3 in a table of MoNE's paper (arXiv
2407.19985). AugReg from scratch: none known to us. The models of those figures differ from this
one in the head: from scratch it has one more hidden layer, AugReg's use a class token.

Data: TFDS `imagenet2012`; trains on 99 % of `train`, evaluates on `validation` (50,000 images).
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "Ti/16") -> ConfigDict:
    """Return the configuration.

    Args:
      arg: `SIZE/PATCH[,recipe=augreg|plain][,init=DIR]`.
        SIZE: Ti, S, B or L; init: fine-tune the ImageNet-21k run in DIR at 384 pixels.
    """
    a = parse(arg, variant="Ti/16", recipe="augreg", init="")
    return methods.dense(tasks.imagenet1k(a.variant, a.recipe, a.init))
