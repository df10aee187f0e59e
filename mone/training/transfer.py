"""Start a run from the parameters of another one, whose task or image size may differ.

Axes: N tokens of the old grid, M tokens of the new grid, D model width.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mone.errors import CheckpointError
from mone.models import ViTConfig, vit_config
from mone.training.checkpoints import compare_params, flatten
from mone.training.workdir import load_trained

PyTree = Any
Grid = tuple[int, int]
_POSEMB = "embed/posemb"


def start_params(
    workdir: str | Path, cfg: ViTConfig, fresh: PyTree
) -> tuple[PyTree, tuple[str, ...]]:
    """Return parameters to start a new run from those of another (`checkpoint.init_from`).

    The averaged parameters are taken if there are any. Three things may differ between the
    models; all else must agree in name and shape:

    - A classifier for another number of classes keeps its fresh value.
    - A learned position embedding of another grid is resized to the new one.
    - What a router needs (names with "router" or "alpha") keeps its fresh value where the source
      has none, and is left out where the new model has none.

    Args:
      workdir: The other run's directory; its config.json tells its grid and classes.
      cfg: The new run's model.
      fresh: Its freshly initialised parameters.

    Returns:
      The parameters, as numpy arrays, and a sentence about each difference, with the names.

    Raises:
      CheckpointError: If it cannot be read; lists all mismatches at once.
    """
    try:
        config, found = load_trained(workdir, ema=True)
    except CheckpointError as e:
        raise CheckpointError(f"checkpoint.init_from={str(workdir)!r}: {e}") from e
    old, source, target = vit_config(config.model), flatten(found), flatten(fresh)
    notes = []
    if old.num_classes != cfg.num_classes:
        head = [name for name in target if name.startswith("head/")]
        source |= {name: target[name] for name in head}
        notes.append(
            f"freshly initialised, for {cfg.num_classes} classes in place of "
            f"{old.num_classes}: {', '.join(head)}"
        )
    if old.grid != cfg.grid and old.width == cfg.width and _POSEMB in source and _POSEMB in target:
        source[_POSEMB] = resize_posemb(source[_POSEMB], old.grid, cfg.grid)
        notes.append(f"resized from {_text(old.grid)} to {_text(cfg.grid)} patches: {_POSEMB}")
    notes += _check(workdir, target, source)
    params = jax.tree_util.tree_map_with_path(
        lambda path, x: np.asarray(source.get("/".join(str(p.key) for p in path), x)), fresh
    )
    return params, tuple(notes)


def resize_posemb(posemb: Float[Array, "1 N D"], old: Grid, new: Grid) -> Float[Array, "1 M D"]:
    """Resize a position embedding to another grid of patches.

    Bilinear, with antialiasing where the grid shrinks, in float32; patches are areas of the image
    (half-pixel centres). Dosovitskiy et al., "An Image is Worth 16x16 Words", Sec. 3.2.

    Args:
      posemb: One vector for each patch, row by row, without a class token.
      old: Rows and columns of its grid; N is their product.
      new: Rows and columns wanted; the same grid returns `posemb` as it is.
    """
    if old == new:
        return posemb
    width = posemb.shape[-1]
    image = jnp.asarray(posemb, jnp.float32).reshape(*old, width)
    image = jax.image.resize(image, (*new, width), "bilinear", antialias=True)
    return image.reshape(1, -1, width)


def _check(workdir: str | Path, target: PyTree, source: PyTree) -> list[str]:
    """Refuse what does not fit; return a sentence about what only one of the two has."""
    missing, extra, problems = compare_params(target, source)
    added = [name for name in missing if _of_router(name)]
    dropped = [name for name in extra if _of_router(name)]
    problems += [f"{name}: not in the checkpoint" for name in missing if name not in added]
    problems += [f"{name}: not in the model" for name in extra if name not in dropped]
    if problems:
        raise CheckpointError(
            f"checkpoint.init_from={str(workdir)!r} does not fit the model:\n  "
            + "\n  ".join(problems)
        )
    sentences = {"freshly initialised, not there": added, "left out, not needed here": dropped}
    return [f"{text}: {', '.join(names)}" for text, names in sentences.items() if names]


def _of_router(name: str) -> bool:
    return "router" in name or "alpha" in name


def _text(grid: Grid) -> str:
    return f"{grid[0]}x{grid[1]}"
