"""What validation finds between the fields of a configuration."""

import pytest

from mone import config
from mone.errors import ConfigError


def problems(*overrides: str, name: str = "fashion_mnist/mone") -> list[str]:
    try:
        config.validate(config.load(name, overrides))
    except ConfigError as e:
        return str(e).split("\n  ")
    return []


def test_a_sound_configuration_passes():
    assert problems() == []
    assert problems("num_epochs=0", "num_steps=100", "optimizer.accum_steps=4") == []
    assert problems("mesh.data=2", "mesh.fsdp=-1", "budget.full_width=true") == []


@pytest.mark.parametrize(
    ("name", "override"),
    [
        ("vit", "budget.full_width=true"),
        ("vit", "budget.distill=0.5"),
        ("vit", "model.router_noise=1"),
        ("matvit", "budget.draws=2"),
        ("matvit", "budget.allocation=greedy"),
        ("matvit", "model.router=random"),
        ("mod", "budget.beta=1"),
        ("mod", "model.router_layers=1"),
        ("mone", "model.mod_every=1"),
    ],
)
def test_settings_that_a_method_does_not_read_are_refused(name, override):
    field = override.partition("=")[0]
    (problem,) = problems(override, name=f"fashion_mnist/{name}")
    assert f"{field}=" in problem
    assert "has no meaning for model.method" in problem


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["num_steps=5"], "num_epochs=1, num_steps=5: exactly one must be positive"),
        (["num_epochs=0"], "num_epochs=0, num_steps=0: exactly one must be positive"),
        (["num_epochs=-1"], "num_epochs=-1.0: must be at least 0"),
        (["batch_size=0"], "batch_size=0: must be at least 1"),
        (["optimizer.accum_steps=3"], "batch_size=64: must be divisible by optimizer.accum"),
        (["log_every=0"], "log_every=0"),
        (["seed=4294967296"], "seed=4294967296: must be below 4294967296"),
        (["model.patch_size=5"], "image_size=(28, 28) must be a multiple of patch_size=(5, 5)"),
        (["model.num_heads=5"], "model.width=96 must be divisible by model.num_heads=5"),
        (["model.variant=Q/4", "model.width=0"], "model.variant='Q/4'"),
        (["model.width=0"], "model.width must be positive"),
        (["model.pool=max"], "model.pool='max'"),
        (["model.method=moe"], "model.method='moe'"),
        (["model.widths=64,32,96"], "model.widths=(64, 32, 96)"),
        (["model.widths=16,64"], "must end with model.width=96"),
        (["model.num_experts=9"], "model.num_experts=9"),
        (["model.router_layers=4"], "model.router_layers=(4,)"),
        (["model.dropout=1"], "model.dropout=1.0"),
        (["budget.choices=()"], "budget.choices=(): must hold at least one e_c"),
        (["budget.choices=0.1,0.5"], "budget.choices: e_c=0.1 is infeasible"),
        (["budget.adaptive=false", "budget.e_c=1.5"], "budget.e_c: e_c=1.5 is infeasible"),
        (["eval.e_c=0.1"], "eval.e_c: e_c=0.1 is infeasible"),
        (["eval.e_c="], "eval.e_c=(): must hold at least one"),
        (["budget.allocation=even"], "budget.allocation='even'"),
        (["budget.beta=0"], "budget.beta=0.0: must be positive"),
        (["budget.distill=0.5"], "budget.distill=0.5: needs budget.full_width=true"),
        (["budget.distill=2", "budget.full_width=true"], "budget.distill=2.0: must be in [0, 1]"),
        (["budget.draws=0"], "budget.draws=0: must be at least 1"),
        (["data.source=web"], "data.source='web': must be one of embedded, idx, folder, tfds"),
        (["data.source=tfds"], "data.name=''"),
        (["data.source=folder"], "data.path=''"),
        (["data.eval_split="], "data.eval_split=''"),
        (["data.eval_resize=20"], "data.eval_resize=20: must be 0 or at least"),
        (["data.mean=0.1,0.2,0.3"], "data.mean=(0.1, 0.2, 0.3): must have 1 or model.channels=1"),
        (["data.std=0"], "data.std=(0.0,): must be positive"),
        (["data.augment=huge"], "data.augment='huge'"),
        (["data.randaug_magnitude=9"], "data.randaug_magnitude=9: needs data.randaug_layers"),
        (["data.source=embedded", "data.path=/mine"], "data.path='/mine': has no meaning"),
        (["model.channels=2"], "model.channels=2: images have 1 (grey) or 3 (RGB)"),
        (["optimizer.name=lion"], "optimizer.name='lion'"),
        (["optimizer.learning_rate=0"], "optimizer.learning_rate=0.0: must be positive"),
        (["optimizer.b2=1"], "optimizer.b2=1.0: must be in [0, 1)"),
        (["optimizer.warmup_steps=3"], "only one may be positive"),
        (["optimizer.warmup_epochs=5"], "optimizer.warmup_epochs=5: must be below num_epochs=1"),
        (
            [
                "num_epochs=0",
                "num_steps=9",
                "optimizer.warmup_epochs=0",
                "optimizer.warmup_steps=9",
            ],
            "optimizer.warmup_steps=9: must be below num_steps=9",
        ),
        (["loss.name=hinge"], "loss.name='hinge': must be one of softmax, sigmoid"),
        (["loss.label_smoothing=1"], "loss.label_smoothing=1.0"),
        (["mesh.fsdp=-1"], "at most one axis may be -1"),
        (["mesh.fsdp=0"], "mesh.fsdp=0: must be a number of devices"),
        (["checkpoint.keep=0"], "checkpoint.keep=0"),
        (["eval.router=best"], "eval.router='best'"),
    ],
)
def test_each_problem_is_found_alone(overrides, said):
    found = problems(*overrides)
    assert len(found) == 1, found
    assert said in found[0]


def test_all_problems_are_listed_at_once():
    found = problems("num_steps=5", "loss.name=x", "model.pool=x", "data.std=0", "mesh.fsdp=0")
    assert found[0] == "5 problems:"
    for name in ("num_steps", "loss.name", "model.pool", "data.std", "mesh.fsdp"):
        assert sum(name in text for text in found) == 1


def test_budgets_are_checked_only_where_they_are_used():
    assert problems("budget.choices=()", "eval.e_c=0.01", name="fashion_mnist/vit") == []
    assert problems("budget.choices=()", "eval.e_c=0.01", name="fashion_mnist/matvit") == []
    assert problems("budget.choices=0.01", "budget.adaptive=false") == []


def test_mixture_of_depths_has_its_own_interval():
    assert problems("eval.e_c=0.3", "model.mod_every=1", name="embedded/mod") == []
    (found,) = problems("eval.e_c=0.3", "model.mod_every=2", name="embedded/mod")
    assert "[0.5, 1]" in found


def test_mixture_of_depths_needs_a_routed_block():
    with pytest.raises(ConfigError, match="argument every=0: must be at least 1"):
        config.load("embedded/mod:every=0")
