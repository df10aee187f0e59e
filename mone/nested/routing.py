"""The router and Expert Preferred Routing (EPR).

Source: Jain et al., "Mixture of Nested Experts", Sec. 3 and Algorithm 1.

Axes: B batch, N tokens, D model width, E experts (ascending in width).
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, PRNGKeyArray

from mone.errors import ConfigError


def expert_preferred_routing(
    probs: Float[Array, "*batch N E"], counts: Sequence[int]
) -> Int[Array, "*batch N"]:
    """Assign each token to one expert, the widest expert choosing first (Algorithm 1).

    From the widest expert to the narrowest, expert `j` takes the `counts[j]` tokens with the
    highest `probs[..., j]` among those not yet taken; the narrowest gets all that are left.
    Equal probabilities are taken in token order.

    Args:
      probs: Router scores, higher is preferred; any float dtype, compared in float32.
      counts: Static token counts of the E experts, ascending in width, that sum to N.

    Returns:
      int32 expert index of each token; expert `j` occurs exactly `counts[j]` times.

    Raises:
      ConfigError: the counts do not fit the shape of `probs`.
    """
    *batch, num_tokens, num_experts = probs.shape
    counts = tuple(int(k) for k in counts)
    if len(counts) != num_experts or sum(counts) != num_tokens or min(counts) < 0:
        raise ConfigError(
            f"counts={counts} must be {num_experts} numbers >= 0 that sum to the "
            f"{num_tokens} tokens"
        )
    # Taken tokens are marked with -inf (a 0 would tie with a token of probability 0), which no
    # free token may have.
    scores = jnp.maximum(probs.astype(jnp.float32), jnp.finfo(jnp.float32).min)
    scores = scores.reshape(-1, num_tokens, num_experts)
    rows = jnp.arange(scores.shape[0])[:, None]
    assignment = jnp.zeros(scores.shape[:2], jnp.int32)
    taken = jnp.zeros(scores.shape[:2], bool)
    for j in reversed(range(1, num_experts)):
        if counts[j] == 0:
            continue
        _, chosen = jax.lax.top_k(jnp.where(taken, -jnp.inf, scores[..., j]), counts[j])
        assignment = assignment.at[rows, chosen].set(j)
        taken = taken.at[rows, chosen].set(True)
    return assignment.reshape(*batch, num_tokens)


class Router(nnx.Module):
    """`r = softmax(x W_r + b_r)`, in float32 whatever the compute dtype.

    bfloat16 logits would tie, and flip, assignments.
    """

    def __init__(self, width: int, num_experts: int, *, rngs: nnx.Rngs):
        init = nnx.initializers.normal(0.02)
        self.kernel = nnx.Param(init(rngs.params(), (width, num_experts), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((num_experts,), jnp.float32))

    def __call__(self, x: Float[Array, "B N D"]) -> Float[Array, "B N E"]:
        """Return the router probabilities, float32."""
        return jax.nn.softmax(self.logits(x), axis=-1)

    def logits(self, x: Float[Array, "B N D"]) -> Float[Array, "B N E"]:
        """Return the logarithms of the probabilities, up to a constant for each token."""
        logits = jnp.einsum(
            "bnd,de->bne",
            x.astype(jnp.float32),
            self.kernel[...],
            precision=jax.lax.Precision.HIGHEST,
        )
        return logits + self.bias[...]


def random_router_probs(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "B N E"]:
    """Return router probabilities that ignore the input: softmax of standard normal logits."""
    return jax.nn.softmax(jax.random.normal(key, shape, jnp.float32), axis=-1)
