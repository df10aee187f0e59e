"""What must hold for the fields of a configuration, one by one and between each other.

Each check yields one message a problem: the field, its value, and what would be valid. The
model section is checked by `mone.models` itself.
"""

from collections.abc import Iterator

from ml_collections import ConfigDict

from mone.configs.base import base
from mone.errors import ConfigError

_CHOICES = {
    "budget.order": ("random", "wide_to_narrow"),
    "budget.allocation": ("entropy", "uniform", "proportionate", "greedy"),
    "data.source": ("embedded", "idx", "folder", "tfds"),
    "data.crop": ("none", "inception", "pad"),
    "data.augment": (
        "none", "light1", "light2", "medium1", "medium2", "strong1", "strong2",
    ),
    "optimizer.name": ("adamw", "sgd", "muon"),
    "optimizer.schedule": ("cosine", "linear", "constant"),
    "optimizer.moment_dtype": ("bfloat16", "float32"),
    "loss.name": ("softmax", "sigmoid"),
    "eval.router": ("trained", "random"),
}  # fmt: skip

_AT_LEAST = {
    "seed": 0,
    "batch_size": 1,
    "num_epochs": 0,
    "num_steps": 0,
    "log_every": 1,
    "eval_every": 0,
    "profile_steps": 0,
    "data.num_train": 0,
    "data.subset_seed": 0,
    "data.eval_resize": 0,
    "data.randaug_layers": 0,
    "data.randaug_magnitude": 0,
    "data.threads": 1,
    "data.prefetch": 1,
    "optimizer.warmup_steps": 0,
    "optimizer.warmup_epochs": 0,
    "optimizer.weight_decay": 0,
    "optimizer.clip_norm": 0,
    "optimizer.accum_steps": 1,
    "checkpoint.every": 1,
    "checkpoint.keep": 1,
    "eval.batch_size": 1,
}

_BELOW = {"seed": 2**32, "data.subset_seed": 2**32}  # What grain and JAX take.

_POSITIVE = ("budget.delta", "budget.beta", "optimizer.learning_rate", "optimizer.eps")

_BELOW_ONE = (
    "optimizer.b1",
    "optimizer.b2",
    "optimizer.momentum",
    "optimizer.ema_decay",
    "loss.label_smoothing",
)


# Settings that only some methods read. Set for another method they would be ignored, and a run
# would not be what its configuration says.
READ_BY = {
    "budget.draws": ("mone", "mod"),
    "budget.full_width": ("mone", "mod"),
    "budget.distill": ("mone", "mod", "matvit"),
    "budget.order": ("mone", "mod"),
    "budget.allocation": ("mone",),
    "budget.delta": ("mone",),
    "budget.beta": ("mone",),
    "model.router": ("mone", "mod"),
    "model.router_noise": ("mone",),
    "model.router_layers": ("mone",),
    "model.router_scale": ("mone",),
    "model.frozen": ("mone", "matvit"),
    "model.mod_every": ("mod",),
}


def problems(config: ConfigDict) -> list[str]:
    """Return everything that is wrong with `config`, in words; an empty list if nothing is."""
    found = [*_single_fields(config)]
    for check in (_run, _unused, _model, _budget, _data, _optimizer, _mesh):
        found += check(config)
    return found


def _get(config: ConfigDict, name: str):
    for part in name.split("."):
        config = config[part]
    return config


def _single_fields(config: ConfigDict) -> Iterator[str]:
    for name, valid in _CHOICES.items():
        if (value := _get(config, name)) not in valid:
            yield f"{name}={value!r}: must be one of {', '.join(valid)}"
    for name, low in _AT_LEAST.items():
        if (value := _get(config, name)) < low:
            yield f"{name}={value}: must be at least {low}"
    for name, high in _BELOW.items():
        if (value := _get(config, name)) >= high:
            yield f"{name}={value}: must be below {high}"
    for name in _POSITIVE:
        if (value := _get(config, name)) <= 0:
            yield f"{name}={value}: must be positive"
    for name in _BELOW_ONE:
        if not 0 <= (value := _get(config, name)) < 1:
            yield f"{name}={value}: must be in [0, 1)"


def _run(config: ConfigDict) -> Iterator[str]:
    lengths = (config.num_epochs, config.num_steps)
    if min(lengths) >= 0 and (lengths[0] > 0) == (lengths[1] > 0):
        yield (
            f"num_epochs={config.num_epochs:g}, num_steps={config.num_steps}: "
            "exactly one must be positive, the other 0"
        )
    accum = config.optimizer.accum_steps
    if accum > 0 and config.batch_size % accum:
        yield f"batch_size={config.batch_size}: must be divisible by optimizer.accum_steps={accum}"


def _unused(config: ConfigDict) -> Iterator[str]:
    fresh, method = base(), config.model.method
    if method != "dense" and not any(method in methods for methods in READ_BY.values()):
        return  # An unknown method: the model's check says so.
    for name, methods in READ_BY.items():
        if method not in methods and (value := _get(config, name)) != _get(fresh, name):
            yield (
                f"{name}={value!r}: has no meaning for model.method={method!r}; "
                f"only for {', '.join(methods)}"
            )


def _model(config: ConfigDict) -> Iterator[str]:
    """Let the model check its own section, then ask it which budgets it can meet."""
    from mone.models import budget_counts, vit_config  # JAX takes a second to import.

    try:
        cfg = vit_config(config.model)
    except ConfigError as e:
        yield str(e)
        return
    b = config.budget
    usable = b.allocation in _CHOICES["budget.allocation"] and b.delta > 0 and b.beta > 0
    if cfg.method not in ("mone", "mod") or not usable:
        return
    trained = {"budget.choices": b.choices} if b.adaptive else {"budget.e_c": (b.e_c,)}
    for name, values in {**trained, "eval.e_c": config.eval.e_c}.items():
        failures = []
        for e_c in values:
            try:
                budget_counts(cfg, e_c, allocation=b.allocation, delta=b.delta, beta=b.beta)
            except ConfigError as e:
                failures.append(str(e))
        if failures:
            more = f" (so are {len(failures) - 1} more of its values)" if failures[1:] else ""
            yield f"{name}: {failures[0]}{more}"


def _budget(config: ConfigDict) -> Iterator[str]:
    b = config.budget
    if not 0 <= b.distill <= 1:
        yield f"budget.distill={b.distill}: must be in [0, 1]"
    if config.model.method not in ("mone", "mod"):
        return
    if b.adaptive and not b.choices:
        yield "budget.choices=(): must hold at least one e_c, or set budget.adaptive=false"
    if b.adaptive and b.draws < 1:
        yield f"budget.draws={b.draws}: must be at least 1"
    if b.distill > 0 and not b.full_width:
        yield f"budget.distill={b.distill}: needs budget.full_width=true, whose logits it uses"
    if not config.eval.e_c:
        yield "eval.e_c=(): must hold at least one e_c"


def _data(config: ConfigDict) -> Iterator[str]:
    d, m = config.data, config.model
    if d.source == "tfds" and not d.name:
        yield "data.name='': must name the data set for data.source='tfds'"
    if d.source == "folder" and not d.path:
        yield "data.path='': must be the directory of the images for data.source='folder'"
    if d.source == "embedded":
        for name in ("name", "path"):
            if d[name]:
                yield f"data.{name}={d[name]!r}: has no meaning for data.source='embedded'"
    if d.randaug_magnitude and not d.randaug_layers and d.augment == "none":
        yield (
            f"data.randaug_magnitude={d.randaug_magnitude}: needs data.randaug_layers, or another "
            "preset than data.augment='none'"
        )
    if m.channels not in (1, 3):
        yield f"model.channels={m.channels}: images have 1 (grey) or 3 (RGB)"
    for name in ("train_split", "eval_split"):
        if not d[name]:
            yield f"data.{name}='': must name a split"
    if d.eval_resize and d.eval_resize < m.image_size:
        yield (
            f"data.eval_resize={d.eval_resize}: must be 0 or at least "
            f"model.image_size={m.image_size}"
        )
    for name in ("mean", "std"):
        if len(d[name]) not in (1, m.channels):
            yield f"data.{name}={d[name]}: must have 1 or model.channels={m.channels} values"
    if any(value <= 0 for value in d.std):
        yield f"data.std={d.std}: must be positive"


def _optimizer(config: ConfigDict) -> Iterator[str]:
    o = config.optimizer
    if o.warmup_steps > 0 and o.warmup_epochs > 0:
        yield (
            f"optimizer.warmup_steps={o.warmup_steps}, "
            f"optimizer.warmup_epochs={o.warmup_epochs:g}: only one may be positive"
        )
    if 0 < config.num_steps <= o.warmup_steps:
        yield f"optimizer.warmup_steps={o.warmup_steps}: must be below num_steps={config.num_steps}"
    if 0 < config.num_epochs <= o.warmup_epochs:
        yield (
            f"optimizer.warmup_epochs={o.warmup_epochs:g}: "
            f"must be below num_epochs={config.num_epochs:g}"
        )


def _mesh(config: ConfigDict) -> Iterator[str]:
    sizes = {"data": config.mesh.data, "fsdp": config.mesh.fsdp}
    for name, size in sizes.items():
        if size < 1 and size != -1:
            yield f"mesh.{name}={size}: must be a number of devices, or -1 for all that remain"
    if list(sizes.values()).count(-1) > 1:
        yield "mesh.data=-1, mesh.fsdp=-1: at most one axis may be -1"
