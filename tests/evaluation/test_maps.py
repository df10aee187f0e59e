import jax
import numpy as np
import pytest

from mone.errors import ConfigError
from mone.evaluation.maps import expert_names, pixels, routing_figure, routing_maps
from mone.models import ViTConfig, budget_counts, functional, vit_config

IMAGES = np.random.default_rng(0).normal(size=(3, 28, 28, 1)).astype(np.float32)


@pytest.mark.parametrize(("method", "e_c"), [("mone", 0.4), ("mod", 0.7)])
def test_maps_are_the_models_own_assignment(tiny_experiment, lively_params, method, e_c):
    config = tiny_experiment(**{"model.method": method})
    cfg = vit_config(config.model)
    params, counts = lively_params(config), budget_counts(cfg, e_c)
    maps = routing_maps(config, params, counts, IMAGES)
    assert maps.shape == (3, 4, 4)
    for image in maps:
        assert tuple(np.bincount(image.ravel(), minlength=cfg.num_experts)) == counts
    own = jax.jit(lambda params, images: functional.apply(cfg, params, images, counts)[1])
    own = own(params, IMAGES)["routers"][0 if method == "mone" else 1]["assignment"]
    np.testing.assert_array_equal(maps.reshape(3, 16), own)


def test_of_several_routers_the_layer_tells_which(tiny_experiment, lively_params):
    config = tiny_experiment(**{"model.router_layers": (0, 1)})
    params = lively_params(config)
    first, same, second = (
        routing_maps(config, params, (4, 6, 6), IMAGES, layer=layer) for layer in (None, 0, 1)
    )
    np.testing.assert_array_equal(first, same)
    assert (first != second).any()
    with pytest.raises(ConfigError, match=r"layer = 2: .* router: 0, 1"):
        routing_maps(config, params, (4, 6, 6), IMAGES, layer=2)


def test_a_model_without_router_has_no_maps(tiny_experiment, lively_params):
    config = tiny_experiment(**{"model.method": "dense"})
    with pytest.raises(ConfigError, match="dense model with a router: none"):
        routing_maps(config, lively_params(config), (16,), IMAGES)


def test_figure_has_a_row_an_image_and_a_column_a_budget(tiny_experiment):
    cfg = vit_config(tiny_experiment().model)
    maps = {e_c: np.arange(48).reshape(3, 4, 4) % 3 for e_c in (0.4, 0.6)}
    images = np.random.default_rng(0).random((3, 28, 28, 3))
    figure = routing_figure(cfg, images, maps, captions=["a", "b", "c"], title="T")
    axes = np.array(figure.axes).reshape(3, 3)
    assert [axis.get_title() for axis in axes[0]] == ["image", "$e_c$ = 0.4", "$e_c$ = 0.6"]
    assert [axis.get_ylabel() for axis in axes[:, 0]] == ["a", "b", "c"]
    np.testing.assert_array_equal(axes[1, 2].images[0].get_array(), maps[0.6][1])
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["D/4", "D/2", "D"]


def test_experts_are_named_by_their_share_of_the_width():
    sizes = {
        "width": 48, "depth": 2, "num_heads": 2, "mlp_dim": 96, "patch_size": (4, 4),
        "image_size": (8, 8),
    }  # fmt: skip
    cfg = ViTConfig(**sizes, method="mone", widths=(6, 20, 48))
    assert expert_names(cfg) == ["D/8", "0.42 D", "D"]
    assert expert_names(ViTConfig(**sizes, method="mod")) == ["skipped", "processed"]


def test_pixels_undo_the_normalisation(tiny_experiment):
    config = tiny_experiment(**{"data.mean": (0.1,), "data.std": (0.2,)})
    original = np.random.default_rng(0).random((2, 4, 4, 1))
    np.testing.assert_allclose(pixels((original - 0.1) / 0.2, config), original)
