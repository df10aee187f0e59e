"""ViT on ImageNet-21k, from scratch: the dense model that the others are compared with.

    mone train --config=imagenet21k/vit:S/16 --workdir=DIR

Hardware: a TPU or GPU pod slice (batch 4096, bfloat16); hours are not published.
Cost: Ti/16 1.25, S/16 4.58, B/16 17.5, L/16 61.3 GMAC an image; 300 epochs.
Training, EFLOP (300 epochs, 3 forwards a step): Ti/16 31.8, S/16 117, B/16 445, L/16 1560.
Expect: MoNE's paper (arXiv 2407.19985) plots ImageNet-21k as curves, without a table. After
AugReg's fine-tuning on ImageNet-1k at 384 pixels (`imagenet1k/vit:S/16,init=DIR`) its authors
list Ti/16 78.22, S/16 83.73, B/16 85.49, L/16 85.59 % top-1 (google-research/vision_transformer,
README; S and Ti with weight decay 3e-5, B with medium1, L with strong1, a class token).

Data: the 21,843-class ImageNet-21k is not among the public TFDS builders. Prepare it under the
name `imagenet21k` with one split, `full` (the recipe evaluates on images 25,600 to 51,200 and
trains on those after), or read folders: `--config.data.source=folder --config.data.path=DIR
--config.data.train_split=train --config.data.eval_split=val`.
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "Ti/16") -> ConfigDict:
    """Return the configuration; `arg`: `SIZE/PATCH`, SIZE one of Ti, S, B, L."""
    a = parse(arg, variant="Ti/16")
    return methods.dense(tasks.imagenet21k(a.variant))
