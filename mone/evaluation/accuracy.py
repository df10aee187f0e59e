"""Accuracy and loss of a model at one budget, over a whole split and all hosts.

Axes: B images of a batch (this host's; padding included), H W C image, K classes.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict

from mone.errors import ConfigError, DataError
from mone.models import ViTConfig, functional, vit_config


def evaluate(
    config: ConfigDict,
    params: Any,
    *,
    counts: Sequence[int] | None,
    batches: Iterable[Mapping[str, np.ndarray]],
    router: str = "trained",
    key_seed: int = 0,
) -> dict[str, float | int]:
    """Score a model at one budget on every image of `batches`, each once.

    The forward pass is compiled once for a model and budget and kept for later calls. Sums are
    made on the host: examples and hits as integers, the loss in float64.

    Args:
      config: The experiment; `config.model` and `config.loss.name` are used.
      params: Parameters, a nested dictionary of arrays; spread over a mesh or not.
      counts: Tokens for each expert (`mone.models.budget_counts`); None: full width.
      batches: "image" float32 [B, H, W, C], "label" int32 [B], "mask" float32 [B] (0: padding);
        this host's part. On several hosts each must bring the same number of batches.
      router: "trained", or "random": experts drawn at random at the same counts, which tells
        what the trained router is worth.
      key_seed: Seed of the random router.

    Returns:
      "accuracy" (top-1, in 0..1), "loss" (mean cross-entropy, without label smoothing),
      "num_examples" and "unreadable": images of the split (`EvalBatches.num_examples`; 0 for other
      batches) that could not be read and count neither as right nor as wrong.

    Raises:
      ConfigError: `router` is neither of the two.
      DataError: `batches` holds no image.
    """
    if router not in ("trained", "random"):
        raise ConfigError(f"router = {router!r}: valid are 'trained' and 'random'.")
    mesh = _mesh_of(params)
    cfg = vit_config(config.model)
    counts = None if counts is None else tuple(counts)
    score = _scorer(cfg, counts, router, config.loss.name, mesh)
    key = jax.random.key(key_seed)
    examples, hits, loss = 0, 0, 0.0
    for index, batch in enumerate(batches):
        images, labels, mask = _place(batch, mesh)
        hit, losses = score(params, images, labels, jax.random.fold_in(key, index))
        mask = np.asarray(mask) > 0
        examples += int(mask.sum())
        hits += int(np.asarray(hit)[mask].sum())
        loss += float(np.asarray(losses, np.float64)[mask].sum())
    if mesh is None:
        examples, hits, loss = _sum_over_hosts(examples, hits, loss)
    if examples == 0:
        raise DataError("There is no image to evaluate: the evaluation split is empty.")
    return {
        "accuracy": hits / examples,
        "loss": loss / examples,
        "num_examples": examples,
        "unreadable": getattr(batches, "num_examples", examples) - examples,
    }


@functools.lru_cache(maxsize=64)
def _scorer(
    cfg: ViTConfig, counts: tuple[int, ...] | None, router: str, loss: str, mesh: Mesh | None
) -> Callable:
    """Return the jitted function that scores a batch: (hit bool [B], loss float32 [B])."""

    def score(params: Any, images: Array, labels: Array, key: Array) -> tuple[Array, Array]:
        logits, _ = functional.apply(
            cfg, params, images, counts, key=key, router="random" if router == "random" else None
        )
        return jnp.argmax(logits, -1) == labels, example_losses(logits, labels, loss)

    if mesh is None:
        return jax.jit(score)
    return jax.jit(score, out_shardings=NamedSharding(mesh, PartitionSpec()))


def example_losses(
    logits: Float[Array, "B K"], labels: Int[Array, " B"], name: str
) -> Float[Array, " B"]:
    """Return each image's cross-entropy: "softmax", or "sigmoid" (summed over the classes)."""
    logits = logits.astype(jnp.float32)
    if name == "softmax":
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    targets = jax.nn.one_hot(labels, logits.shape[-1])
    return optax.sigmoid_binary_cross_entropy(logits, targets).sum(-1)


def _mesh_of(params: Any) -> Mesh | None:
    """Return the mesh that the parameters are spread over; None if they are on one device."""
    sharding = getattr(jax.tree.leaves(params)[0], "sharding", None)
    if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1:
        return sharding.mesh
    return None


def _place(batch: Mapping[str, np.ndarray], mesh: Mesh | None) -> tuple[Any, Any, Any]:
    """Put a host's batch on its devices; return images, labels and the whole batch's mask.

    On a mesh the batch becomes a global array, split over all its axes; a batch that does not
    divide by this host's devices is padded with masked images.
    """
    image, label, mask = (np.asarray(batch[name]) for name in ("image", "label", "mask"))
    if mesh is None:
        return image, label, mask
    short = -len(mask) % len(mesh.local_devices)
    image, label, mask = (
        np.pad(array, [(0, short)] + [(0, 0)] * (array.ndim - 1)) for array in (image, label, mask)
    )
    split = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    image, label, mask = (
        jax.make_array_from_process_local_data(split, array) for array in (image, label, mask)
    )
    whole = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, PartitionSpec()))
    return image, label, whole(mask)


def _sum_over_hosts(examples: int, hits: int, loss: float) -> tuple[int, int, float]:
    """Add up the hosts' sums; the parts travel as bytes, since x64 is usually off."""
    if jax.process_count() == 1:
        return examples, hits, loss
    from jax.experimental import multihost_utils

    mine = np.array([examples, hits, loss], np.float64)
    rows = multihost_utils.process_allgather(mine.view(np.uint8))
    total = np.asarray(rows).view(np.float64).reshape(-1, 3).sum(0)
    return int(total[0]), int(total[1]), float(total[2])
