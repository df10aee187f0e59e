"""MatViT on ImageNet-21k, from scratch: the losses of all widths summed in each step.

    mone train --config=imagenet21k/matvit:S/16 --workdir=DIR

Hardware: a TPU or GPU pod slice (batch 4096, bfloat16); hours are not published.
Cost, GMAC an image at D/8, D/4, D/2, D: Ti/16 .34, .47, .73, 1.25; S/16 .94, 1.46, 2.50, 4.58;
B/16 2.9, 5.0, 9.2, 17.5; L/16 9.5, 16.9, 31.7, 61.3. A training step costs the sum of the four,
2.0 (B/16) dense steps; 300 epochs.
Training, EFLOP (300 epochs, 3 forwards a step): Ti/16 71.1, S/16 241, B/16 880, L/16 3040.
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
    """Return the configuration; `arg`: `SIZE/PATCH[,experts=E]`, SIZE one of Ti, S, B, L."""
    a = parse(arg, variant="Ti/16", experts=4)
    return methods.matvit(tasks.imagenet21k(a.variant), experts=a.experts)
