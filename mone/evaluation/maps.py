"""Pictures of what goes where: the expert that processes each patch of an image.

Axes: B images, N patch tokens, H W C image, h w grid of patches.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import matplotlib
import numpy as np
from jaxtyping import Float, Int
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from ml_collections import ConfigDict

from mone.errors import ConfigError
from mone.models import ViTConfig, functional, vit_config


def routing_maps(
    config: ConfigDict,
    params: Any,
    counts: Sequence[int],
    images: Float[np.ndarray, "B H W C"],
    *,
    layer: int | None = None,
) -> Int[np.ndarray, "B h w"]:
    """Return the expert of each patch, as the trained router assigns them.

    Args:
      config: The experiment of a model with a router ("mone" or "mod").
      params: Its parameters.
      counts: Tokens for each expert.
      images: Normalised images, as the model takes them.
      layer: Which router, of several, by the layer that it stands before; None: the first.

    Returns:
      int32 expert index, 0 the narrowest; of "mod" 1 is processed, 0 skipped.

    Raises:
      ConfigError: The model has no router there; it names those it has.
    """
    cfg = vit_config(config.model)
    counts = tuple(counts)

    def route(params: Any, images: jax.Array, key: jax.Array) -> dict[int, jax.Array]:
        routers = functional.apply(cfg, params, images, counts, key=key)[1]["routers"]
        return {layer: router["assignment"] for layer, router in routers.items()}

    assignments = jax.jit(route)(params, images, jax.random.key(0))
    layer = min(assignments, default=None) if layer is None else layer
    if layer not in assignments:
        has = ", ".join(map(str, sorted(assignments))) or "none"
        raise ConfigError(
            f"layer = {layer}: layers of this {cfg.method} model with a router: {has}"
        )
    return np.asarray(assignments[layer]).reshape(-1, *cfg.grid)


def routing_figure(
    cfg: ViTConfig,
    images: Float[np.ndarray, "B H W C"],
    maps: Mapping[float, Int[np.ndarray, "B h w"]],
    *,
    captions: Sequence[str] = (),
    title: str = "",
) -> Figure:
    """Draw images, and beside each the expert of every patch at several budgets.

    Args:
      cfg: The model; its widths name the experts.
      images: Pixels in 0..1.
      maps: Expert of each patch, by budget e_c.
      captions: A word for each image, its class for instance.
      title: Heading.

    Returns:
      A matplotlib figure: one row an image, one column a budget.
    """
    rows, columns = len(images), 1 + len(maps)
    colors = ListedColormap(_expert_colors(cfg.num_experts))
    figure = Figure(
        figsize=(1.45 * columns + 0.7, 1.45 * rows + 1.1), dpi=130, layout="constrained"
    )
    axes = figure.subplots(rows, columns, squeeze=False)
    for row in range(rows):
        axes[row, 0].imshow(_displayable(images[row]), cmap="gray", vmin=0, vmax=1)
        if row < len(captions):
            axes[row, 0].set_ylabel(captions[row], fontsize=10)
        for axis, experts in zip(axes[row, 1:], maps.values(), strict=True):
            _draw_map(axis, experts[row], colors, cfg.num_experts)
    axes[0, 0].set_title("image", fontsize=10)
    for axis, e_c in zip(axes[0, 1:], maps, strict=True):
        axis.set_title(f"$e_c$ = {e_c:g}", fontsize=10)
    for axis in axes.ravel():
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    handles = [
        Patch(facecolor=colors(j), edgecolor="#888888", label=name)
        for j, name in enumerate(expert_names(cfg))
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(len(handles), 2 * columns),
        frameon=False, fontsize=10,
    )  # fmt: skip
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def expert_names(cfg: ViTConfig) -> list[str]:
    """Return what to call the experts: "skipped", "processed", or a width as a share of D."""
    if cfg.method == "mod":
        return ["skipped", "processed"]
    names = []
    for width in cfg.widths:
        divisor = cfg.width / width
        name = "D" if width == cfg.width else f"D/{divisor:g}"
        names.append(name if divisor == int(divisor) else f"{width / cfg.width:.2f} D")
    return names


def _expert_colors(num_experts: int) -> np.ndarray:
    """Return a colour an expert, pale to dark with the width: in order in grey as well."""
    return matplotlib.colormaps["YlGnBu"](np.linspace(0.1, 0.95, max(num_experts, 2)))


def _draw_map(axis: Any, experts: np.ndarray, colors: Any, num_experts: int) -> None:
    """Draw the experts as coloured patches with white lines between them."""
    axis.imshow(experts, cmap=colors, vmin=-0.5, vmax=num_experts - 0.5)
    rows, columns = experts.shape
    width = 0.8 if max(rows, columns) <= 16 else 0.3
    axis.hlines(np.arange(rows - 1) + 0.5, -0.5, columns - 0.5, color="white", linewidth=width)
    axis.vlines(np.arange(columns - 1) + 0.5, -0.5, rows - 0.5, color="white", linewidth=width)


def _displayable(image: Float[np.ndarray, "H W C"]) -> np.ndarray:
    image = np.clip(image, 0.0, 1.0)
    return image[..., 0] if image.shape[-1] == 1 else image[..., :3]


def pixels(images: Float[np.ndarray, "B H W C"], config: ConfigDict) -> np.ndarray:
    """Undo the normalisation of `config.data`: return pixels in 0..1."""
    return images * np.asarray(config.data.std) + np.asarray(config.data.mean)
