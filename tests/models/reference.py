"""A plain ViT with nested experts, padded and masked at full width, for comparison.

Nothing is shared with the package but the parameter tree: each token carries a 0/1 mask over the
model width, every product runs at full width, and LayerNorm sees all features. It computes in the
dtype of its inputs, so in float64 under `jax.enable_x64`.

Axes: B batch, N tokens, D model width, E experts, H heads.
"""

import jax
import jax.numpy as jnp
import numpy as np


def patches(images, size):
    """Cut images [B, H, W, C] into [B, N, size * size * C], with loops."""
    rows, columns = images.shape[1] // size, images.shape[2] // size
    cut = [
        images[:, r * size : (r + 1) * size, c * size : (c + 1) * size].reshape(len(images), -1)
        for r in range(rows)
        for c in range(columns)
    ]
    return jnp.stack(cut, axis=1)


def layer_norm(x, p, seen=1.0):
    """LayerNorm over those features of the last axis that are seen; the others become 0."""
    seen = jnp.broadcast_to(seen, x.shape).astype(x.dtype)
    size = seen.sum(-1, keepdims=True)
    mean = (x * seen).sum(-1, keepdims=True) / size
    var = ((x - mean) ** 2 * seen).sum(-1, keepdims=True) / size
    return ((x - mean) / jnp.sqrt(var + 1e-6) * p["scale"] + p["bias"]) * seen


def dense(x, p):
    """Affine map."""
    return x @ p["kernel"] + p["bias"]


def gelu(x):
    """GELU, tanh form."""
    return 0.5 * x * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attention(x, p, heads, mask):
    """Self-attention whose input and output are masked at full width."""
    b, n, d = x.shape
    qkv = dense(x * mask, p["qkv"]).reshape(b, n, 3, heads, d // heads)
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    logits = jnp.einsum("bnhp,bmhp->bhnm", q, k) / np.sqrt(d // heads)
    weights = jnp.exp(logits - logits.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    y = jnp.einsum("bhnm,bmhp->bnhp", weights, v).reshape(b, n, d)
    return dense(y, p["out"]) * mask


def ffn(x, p, mask, hidden_mask):
    """FFN whose input, hidden and output features are masked."""
    hidden = gelu(dense(x * mask, p["fc1"])) * hidden_mask
    return dense(hidden, p["fc2"]) * mask


def block(x, p, heads, mask, hidden_mask, scale, seen):
    """MoNE, Eq. 2."""
    z = x + attention(layer_norm(x, p["ln1"], seen), p["attn"], heads, mask)
    return z + scale * ffn(layer_norm(z, p["ln2"], seen), p["mlp"], mask, hidden_mask)


def route(x, router, assignment):
    """Return the softmax probability of each token's given expert, [B, N, 1]."""
    z = dense(x, router)
    r = jnp.exp(z - z.max(-1, keepdims=True))
    r = r / r.sum(-1, keepdims=True)
    return jnp.take_along_axis(r, assignment[..., None], -1)


def with_class_token(assignment, cfg):
    """Let a class token, the last one, ride with the widest expert in use."""
    if cfg.pool != "cls":
        return assignment
    top = jnp.full_like(assignment[:, :1], jnp.max(assignment))
    return jnp.concatenate([assignment, top], axis=1)


def attention_pool(x, p, heads):
    """One learned query attends to all tokens; then an FFN with a residual."""
    b, n, d = x.shape
    q = dense(p["probe"][0, 0], p["q"]).reshape(heads, d // heads)
    kv = dense(x, p["kv"]).reshape(b, n, 2, heads, d // heads)
    logits = jnp.einsum("hp,bnhp->bhn", q, kv[:, :, 0]) / np.sqrt(d // heads)
    weights = jnp.exp(logits - logits.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    y = dense(jnp.einsum("bhn,bnhp->bhp", weights, kv[:, :, 1]).reshape(b, d), p["out"])
    return y + dense(gelu(dense(layer_norm(y, p["norm"]), p["fc1"])), p["fc2"])


def pool(x, params, cfg):
    """Make one vector of the normalised tokens."""
    if cfg.pool == "cls":
        return x[:, -1]
    return attention_pool(x, params["map"], cfg.num_heads) if cfg.pool == "map" else x.mean(1)


def vit(params, images, cfg, assignments):
    """Return logits.

    Args:
      params: The model's parameter tree.
      images: [B, H, W, C].
      cfg: The model's ViTConfig.
      assignments: {layer: expert of each token, int [B, N]}; a layer without a router of its own
        uses the last. Layers before the first run at full width.
    """
    x = dense(
        patches(images, cfg.patch_size[0]),
        {
            "kernel": params["embed"]["kernel"].reshape(-1, cfg.width),
            "bias": params["embed"]["bias"],
        },
    )
    x = x + params["embed"]["posemb"]
    if cfg.pool == "cls":
        cls = jnp.broadcast_to(params["cls"], (len(x), 1, cfg.width))
        x = jnp.concatenate([x, cls], axis=1)
    full = jnp.full(x.shape[:2], cfg.num_experts - 1)
    assignment, scale = full, 1.0
    for layer in range(cfg.depth):
        p = jax.tree.map(lambda a, layer=layer: a[layer], params["trunk"]["blocks"]["stacked"])
        if layer in assignments:
            routed = jnp.asarray(assignments[layer])
            assignment = with_class_token(routed, cfg)
        if cfg.method == "mone" and layer in assignments:
            index = sorted(assignments).index(layer)
            prob = route(x[:, : cfg.num_patches], params["trunk"]["routers"][index], routed)
            sure = jnp.ones((len(x), x.shape[1] - cfg.num_patches, 1), x.dtype)
            prob = jnp.concatenate([prob, sure], axis=1)
        if cfg.method == "mone" and cfg.router_scale and layer >= min(assignments):
            scale = p["alpha"] * prob + 1
        widths = jnp.asarray(cfg.token_widths)[assignment][..., None]
        hidden = jnp.asarray(cfg.hidden_widths)[assignment][..., None]
        mask = (jnp.arange(cfg.width) < widths).astype(x.dtype)
        hidden_mask = (jnp.arange(cfg.mlp_dim) < hidden).astype(x.dtype)
        seen = mask if cfg.frozen == "dropped" else 1.0
        x = block(x * seen, p, cfg.num_heads, mask, hidden_mask, scale, seen)
    x = layer_norm(x, params["norm"], seen)
    return dense(pool(x, params, cfg), params["head"])
