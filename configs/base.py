"""Every configuration field, with its default, its unit and its valid values.

An experiment file calls `base()` and sets the fields in which it differs. A field that is
not here does not exist: setting it, in a file or on the command line, is an error.
"""

from ml_collections import ConfigDict


def base() -> ConfigDict:
    """Return a new configuration that holds every field; nested sections are described below."""
    c = ConfigDict()
    c.name = ""  # Experiment name, shown in tables.
    c.seed = 0  # Seeds initialisation, data order, augmentation, dropout and budget draws.
    c.batch_size = 128  # Images a step, over all devices and hosts.
    c.num_epochs = 0.0  # Length of training: exactly one of num_epochs, num_steps is positive.
    c.num_steps = 0
    c.log_every = 50  # Steps between progress lines and TensorBoard points.
    c.eval_every = 0  # Steps between evaluations during training; 0: only at the end.
    c.profile_steps = 0  # Record a profile of this many early steps; 0: none.
    c.model = model()
    c.budget = budget()
    c.data = data()
    c.optimizer = optimizer()
    c.loss = loss()
    c.mesh = mesh()
    c.checkpoint = checkpoint()
    c.eval = evaluation()
    return c


def model() -> ConfigDict:
    """The vision transformer and how its experts are nested."""
    m = ConfigDict()
    m.variant = ""  # "Ti/16", "B/14", ...: the table in mone.models.variants; "": sizes below.
    m.width = 0  # D, features of a token. 0: from variant (so are the next four).
    m.depth = 0  # Number of blocks.
    m.num_heads = 0
    m.mlp_dim = 0  # Hidden features of the FFN.
    m.patch_size = 0  # Pixels, square.
    m.image_size = 224  # Pixels, square; the data pipeline delivers this size.
    m.channels = 3
    m.num_classes = 1000
    m.pool = "gap"  # "gap", "cls" or "map".
    m.posemb = "learned"  # "learned" or "sincos2d".
    m.method = "mone"  # "dense", "matvit", "mone" or "mod" (Mixture-of-Depths).
    m.nest = "model"  # Experts nest on the "model" width, or on the hidden "ffn" width only.
    m.num_experts = 4  # E; widths halve from D downwards.
    m.widths = ()  # Explicit expert widths, ascending and ending with D; (): from num_experts.
    m.router = "learned"  # "learned" or "random".
    m.router_noise = 0.0  # Standard deviation of noise on the router's logits in training (mone).
    m.router_scale = True  # Scale the FFN branch by `alpha r + 1`; else nothing trains the router.
    m.router_layers = (0,)  # Layers with a router on their input (mone).
    m.frozen = "kept"  # Features beyond a token's expert: "kept" or "dropped" (mone, matvit).
    m.mod_every = 2  # Every how many blocks one is routed (mod).
    m.dropout = 0.0
    m.drop_path = 0.0  # Stochastic depth: drop probability of the last block, linear from 0.
    m.remat = "none"  # Rematerialise in the backward pass: "none" or "block".
    m.scan = True  # Stack the blocks and scan over them; False: unrolled.
    m.dtype = "float32"  # Compute dtype, "float32" or "bfloat16"; parameters stay float32.
    m.head_bias = 0.0  # Initial bias of the classifier.
    return m


def budget() -> ConfigDict:
    """Which effective capacities e_c a model is trained for (mone, mod)."""
    b = ConfigDict()
    b.adaptive = True  # Draw e_c at each step from `choices`; False: train at `e_c`.
    b.choices = (0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)
    b.draws = 1  # At most how many of the choices each step trains, wide with narrow (adaptive).
    b.e_c = 0.5
    b.order = "random"  # Order of the draws: "random", or "wide_to_narrow" (curriculum).
    b.full_width = False  # Train e_c = 1 beside the drawn budgets in each step.
    b.distill = 0.0  # In 0..1: share of the narrow loss whose target is the wide logits.
    b.allocation = "entropy"  # "entropy", "uniform", "proportionate" or "greedy".
    b.delta = 2.0  # Preference of the allocation for wide experts.
    b.beta = 10.0  # Weight of its entropy term.
    return b


def data() -> ConfigDict:
    """The data set, its splits and the augmentation of the training images."""
    d = ConfigDict()
    d.source = "embedded"  # "embedded", "idx", "folder" or "tfds".
    d.name = ""  # Data set name ("imagenet2012", "imagenet21k"...) for tfds.
    d.path = ""  # Directory of the images, IDX files or TFDS data; "": the source's default.
    d.train_split = "train"
    d.eval_split = "test"
    d.num_train = 0  # Use this many training images, drawn once by subset_seed; 0: all.
    d.subset_seed = 0
    d.crop = "none"  # "none" (resize only), "inception" or "pad" (pad by 1/8, random crop).
    d.eval_resize = 0  # Pixels of the short side before the central crop; 0: model.image_size.
    d.flip = False  # Random left-right flip.
    d.augment = "none"  # AugReg preset: none, light1, light2, medium1, medium2, strong1, strong2.
    d.randaug_layers = 0  # Override the preset's RandAugment(layers, magnitude); 0: preset.
    d.randaug_magnitude = 0
    d.mixup = -1.0  # Override the preset's mixup p (a Beta(p, p) draw); negative: preset.
    d.mean = (0.5,)  # Normalisation (x - mean) / std on 0..1 pixels; one value or one a channel.
    d.std = (0.5,)
    d.threads = 2  # Threads that read and augment, on each host.
    d.prefetch = 4  # Batches prepared ahead.
    return d


def optimizer() -> ConfigDict:
    """Optimiser, learning rate schedule, clipping, accumulation and averaging."""
    o = ConfigDict()
    o.name = "adamw"  # "adamw", "sgd" (momentum) or "muon" (blocks; NAdamW for the rest).
    o.learning_rate = 1e-3  # Peak.
    o.schedule = "cosine"  # "cosine", "linear" or "constant", after the warm-up.
    o.warmup_steps = 0
    o.warmup_epochs = 0.0  # Used if warmup_steps is 0.
    o.weight_decay = 1e-4  # Decoupled, relative to the schedule; matrices only.
    o.b1 = 0.9
    o.b2 = 0.999
    o.eps = 1e-8
    o.moment_dtype = "bfloat16"  # dtype of Adam's first moment or SGD's momentum.
    o.momentum = 0.9  # Of sgd and muon.
    o.clip_norm = 1.0  # Clip gradients to this global norm; 0: no clipping.
    o.accum_steps = 1  # Micro-batches a step whose gradients are averaged.
    o.ema_decay = 0.0  # Exponential moving average of the parameters; 0: none.
    return o


def loss() -> ConfigDict:
    """The training loss."""
    l = ConfigDict()  # noqa: E741
    l.name = "softmax"  # "softmax" or "sigmoid" cross-entropy.
    l.label_smoothing = 0.0
    return l


def mesh() -> ConfigDict:
    """How many devices each mesh axis has; one axis may be -1: all that remain."""
    m = ConfigDict()
    m.data = -1  # Batch split.
    m.fsdp = 1  # Batch and parameters split.
    return m


def checkpoint() -> ConfigDict:
    """Checkpoints and initialisation."""
    k = ConfigDict()
    k.every = 500  # Steps between saves; the last step is always saved.
    k.keep = 2  # How many of the newest to keep.
    k.init_from = ""  # Work directory whose parameters start this run; never a resume.
    return k


def evaluation() -> ConfigDict:
    """Evaluation at the end of training, in `mone eval` and in `mone sweep`."""
    e = ConfigDict()
    e.batch_size = 256
    e.e_c = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # Budgets (mone, mod); matvit: its widths.
    e.router = "trained"  # "trained", or "random": what a trained router is worth.
    e.ema = True  # Use averaged parameters if there are any.
    return e
