"""The data sets and how a model is trained on each, whatever its method.

Sources: "AugReg" is Steiner et al., "How to train your ViT?" (arXiv 2106.10270), with the
settings of its authors' configurations (google-research/big_vision: vit_i21k, vit_i1k,
transfer; google-research/scenic: imagenet_augreg_vit); "plain" is Beyer et al., "Better plain
ViT baselines for ImageNet-1k" (arXiv 2205.01580; big_vision: vit_s16_i1k).
"""

from ml_collections import ConfigDict

from mone.configs import methods
from mone.configs.base import base

SIZES = ("Ti", "S", "B", "L")

# AugReg, Figure 4: augmentation by model; other patch sizes take their size's.
_AUGMENT_21K = {"Ti": "none", "S/32": "none", "S": "light1", "B": "light2", "L": "medium2"}
_AUGMENT_1K = {"Ti": "light1", "S/32": "medium1", "S": "medium2", "B": "medium2", "L": "medium2"}


def imagenet21k(variant: str) -> ConfigDict:
    """ImageNet-21k from scratch, AugReg recipe: 300 epochs at batch 4096."""
    c = _imagenet(variant)
    c.num_epochs = 300
    c.batch_size = 4096
    c.eval_every = 10_000
    c.model.num_classes = 21_843
    c.model.head_bias = -10.0
    c.loss.name = "sigmoid"
    c.data.name = "imagenet21k"
    c.data.train_split = "full[51200:]"
    c.data.eval_split = "full[25600:51200]"
    c.data.augment = _by_model(_AUGMENT_21K, variant)
    c.optimizer.warmup_steps = 10_000
    return c


def imagenet1k(variant: str, recipe: str = "augreg", init: str = "") -> ConfigDict:
    """ImageNet-1k: from scratch, or fine-tuned from an ImageNet-21k work directory.

    Args:
      variant: Size and patch, such as "S/16".
      recipe: "augreg" (300 epochs at batch 4096) or "plain" (90 epochs at batch 1024).
      init: Work directory of a run to fine-tune (AugReg's transfer recipe), in place of
        `recipe`; "": from scratch.

    Raises:
      ValueError: the variant or the recipe is unknown.
    """
    recipes = {"augreg": _augreg_1k, "plain": _plain_1k}
    if recipe not in recipes:
        raise ValueError(f"argument recipe={recipe!r}: must be one of {', '.join(recipes)}")
    c = _imagenet(variant)
    c.eval_every = 2_500
    c.model.num_classes = 1_000
    c.data.name = "imagenet2012"
    c.data.train_split = "train[:99%]"  # The last per cent is left for choosing settings.
    c.data.eval_split = "validation"
    if init:
        _transfer(c, variant, init)
    else:
        recipes[recipe](c, variant)
    return c


def fashion_mnist() -> ConfigDict:
    """Fashion-MNIST, one epoch of its 60,000 images, for 2 CPU cores: D 96, 3 blocks, 49 tokens.

    Short training, in which Muon needs half of AdamW's steps, sine-cosine position embeddings
    are quicker than learned ones, and flips hurt.
    """
    c = _small(width=96, depth=3)
    c.num_epochs = 1
    c.batch_size = 64
    c.model.posemb = "sincos2d"
    c.data.source = "idx"
    c.data.mean = (0.286,)
    c.data.std = (0.353,)
    c.optimizer.name = "muon"
    c.optimizer.learning_rate = 3e-3
    c.optimizer.momentum = 0.95
    c.optimizer.warmup_epochs = 0.1
    c.eval.batch_size = 500
    return c


def embedded() -> ConfigDict:
    """The digits that come with the installation, for 2 CPU cores: D 64, 2 blocks, 49 tokens."""
    c = _small(width=64, depth=2)
    c.num_epochs = 6
    c.batch_size = 32
    c.data.source = "embedded"
    c.data.mean = (0.131,)
    c.data.std = (0.308,)
    c.optimizer.learning_rate = 4e-3
    # Each budget compiles an executable of its own: few of them keep a short run short.
    c.budget.choices = (0.25, 0.4, 0.6, 0.8)
    c.eval.e_c = (0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
    return c


def _imagenet(variant: str) -> ConfigDict:
    """Set what all ImageNet runs share; sizes of 224 pixels, bfloat16, Adam."""
    size, _, patch = variant.partition("/")
    if size not in SIZES or not patch.isdecimal() or int(patch) == 0:
        raise ValueError(
            f"argument variant={variant!r}: must be SIZE/PATCH such as 'Ti/16', SIZE one of "
            f"{', '.join(SIZES)} (no recipe is published for others; set model.variant for them)"
        )
    c = base()
    c.model.variant = variant
    c.model.image_size = 224
    c.model.dtype = "bfloat16"
    c.budget.choices = methods.TRAIN_CHOICES
    c.data.source = "tfds"
    c.data.crop = "inception"
    c.data.eval_resize = 256
    c.data.flip = True
    c.data.threads = 32
    c.data.prefetch = 8
    c.optimizer.learning_rate = 1e-3
    c.optimizer.weight_decay = 1e-4
    c.optimizer.moment_dtype = "bfloat16"
    c.optimizer.clip_norm = 1.0
    c.checkpoint.every = 1_000
    c.eval.batch_size = 1_024
    c.eval.e_c = methods.TEST_CHOICES
    return c


def _augreg_1k(c: ConfigDict, variant: str) -> None:
    c.num_epochs = 300
    c.batch_size = 4096
    c.model.head_bias = -6.9  # -ln 1000
    c.loss.name = "sigmoid"
    c.data.augment = _by_model(_AUGMENT_1K, variant)
    c.optimizer.warmup_steps = 10_000
    if variant[0] in "BL":  # Regularisation helped B and L only (AugReg, Figure 4).
        c.model.dropout = 0.1
        c.model.drop_path = 0.1


def _plain_1k(c: ConfigDict, variant: str) -> None:
    c.num_epochs = 90
    c.batch_size = 1024
    c.model.posemb = "sincos2d"
    c.loss.name = "softmax"
    c.data.augment = "light2"  # RandAugment(2, 10), mixup 0.2.
    c.optimizer.warmup_steps = 10_000


def _transfer(c: ConfigDict, variant: str, init: str) -> None:
    c.num_steps = 20_000
    c.batch_size = 512
    c.checkpoint.init_from = init
    c.model.image_size = 384
    c.data.eval_resize = 448
    c.loss.name = "softmax"
    c.optimizer.name = "sgd"
    c.optimizer.momentum = 0.9
    # The better one of {0.01, 0.03} for AugReg's recommended checkpoint of this model.
    c.optimizer.learning_rate = 0.03 if variant in ("Ti/16", "S/16", "B/16") else 0.01
    c.optimizer.weight_decay = 0.0
    c.optimizer.warmup_steps = 500


def _by_model(table: dict[str, str], variant: str) -> str:
    return table.get(variant) or table[variant.partition("/")[0]]


def _small(width: int, depth: int) -> ConfigDict:
    """Set what the small grey 28x28 images share: patches of 4 pixels, 10 classes."""
    c = base()
    c.batch_size = 128
    c.log_every = 20
    c.model.width = width
    c.model.depth = depth
    c.model.num_heads = 4
    c.model.mlp_dim = 4 * width
    c.model.patch_size = 4
    c.model.image_size = 28
    c.model.channels = 1
    c.model.num_classes = 10
    c.model.scan = False  # On CPU unrolled blocks run on all cores, scanned ones do not.
    c.optimizer.learning_rate = 1e-3
    c.optimizer.warmup_epochs = 0.5
    c.optimizer.moment_dtype = "float32"
    c.checkpoint.every = 200
    return c
