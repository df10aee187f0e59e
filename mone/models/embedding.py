"""From pixels to tokens.

Axes: B batch, H W C image, N tokens, D model width.
"""

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from mone.models.config import ViTConfig
from mone.nested.layers import affine


class PatchEmbedding(nnx.Module):
    """Linear embedding of non-overlapping patches, plus position embeddings.

    A strided convolution written as reshape and product; the kernel [ph, pw, C, D] is that of
    the convolution.
    """

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        shape = (*cfg.patch_size, cfg.channels, cfg.width)
        self.kernel = nnx.Param(
            nnx.initializers.lecun_normal(in_axis=(0, 1, 2))(rngs.params(), shape, jnp.float32)
        )
        self.bias = nnx.Param(jnp.zeros((cfg.width,), jnp.float32))
        if cfg.posemb == "learned":
            init = nnx.initializers.normal(cfg.width**-0.5)
            self.posemb = nnx.Param(
                init(rngs.params(), (1, cfg.num_patches, cfg.width), jnp.float32)
            )
        self.grid, self.width, self.dtype = cfg.grid, cfg.width, cfg.compute_dtype

    def __call__(self, images: Float[Array, "B H W C"]) -> Float[Array, "B N D"]:
        """Embed images; tokens run row by row over the grid of patches."""
        patches = patchify(images, self.kernel.shape[:2]).astype(self.dtype)
        kernel = self.kernel[...].reshape(-1, self.width).astype(self.dtype)
        x = affine(patches, kernel, self.bias[...].astype(self.dtype))
        posemb = self.posemb[...] if hasattr(self, "posemb") else sincos2d(self.grid, self.width)
        return x + posemb.astype(self.dtype)


def patchify(
    images: Float[Array, "B H W C"], patch_size: tuple[int, int]
) -> Float[Array, "B N ph*pw*C"]:
    """Cut images into flat patches, row by row; pixels of a patch run (row, column, channel)."""
    batch, height, width, channels = images.shape
    ph, pw = patch_size
    x = images.reshape(batch, height // ph, ph, width // pw, pw, channels)
    return jnp.swapaxes(x, 2, 3).reshape(batch, -1, ph * pw * channels)


def sincos2d(grid: tuple[int, int], width: int, temperature: float = 10_000.0) -> np.ndarray:
    """Return fixed 2-D sine-cosine position embeddings, float32 [1, N, D] (MoCo v3)."""
    rows, columns = np.mgrid[: grid[0], : grid[1]]
    omega = temperature ** -(np.arange(width // 4) / max(width // 4 - 1, 1))
    angles = [np.outer(axis.ravel(), omega) for axis in (columns, rows)]
    parts = [f(a) for a in angles for f in (np.sin, np.cos)]
    return np.concatenate(parts, axis=1)[None].astype(np.float32)
