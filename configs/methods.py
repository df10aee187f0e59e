"""The four methods, as settings on top of a task: dense, MatViT, MoNE, Mixture-of-Depths.

Source of the budgets: Jain et al., "Mixture of Nested Experts" (arXiv 2407.19985): an adaptive
model draws e_c from {0.15, 0.25, ..., 0.95} at each step and is tested at {0.2, 0.3, ...}; the
Mixture-of-Depths it is compared with processes 12.5 % of the tokens in every second block.
"""

from ml_collections import ConfigDict

TRAIN_CHOICES = (0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)
TEST_CHOICES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
MOD_TOKENS = 0.125  # Share of the tokens that a routed block processes.


def dense(c: ConfigDict) -> ConfigDict:
    """Make `c` a plain ViT: no experts, no budgets."""
    c.name = _name("ViT", c)
    c.model.method = "dense"
    return c


def matvit(c: ConfigDict, experts: int = 4) -> ConfigDict:
    """Make `c` a MatViT: all tokens at one width, the losses of all `experts` widths summed."""
    c.name = _name("MatViT", c)
    c.model.method = "matvit"
    c.model.num_experts = experts
    return c


RECIPES = ("paper", "single", "sandwich")

# Budgets, as shares of the way from the lowest possible e_c to 1. Most of them are low: there
# tokens are narrow, and need the most training.
_SINGLE = (0.03, 0.2, 0.37, 0.6, 1.0)
_SANDWICH = (0.03, 0.09, 0.26, 0.54)


def mone(c: ConfigDict, experts: int = 4, e_c: float = 0.0, recipe: str = "paper") -> ConfigDict:
    """Make `c` a MoNE.

    Args:
      c: The task.
      experts: E, the number of nested experts; widths halve from D downwards.
      e_c: Train and test at this effective capacity alone; 0: adaptive, one model for all.
      recipe: "paper" trains one budget a step, drawn from the nine printed. "single" draws from
        five, the full width among them, so that e_c = 1 is trained too and there are fewer
        programs to compile. "sandwich" trains in each step the full width, a middle and a low
        budget; the logits of the full width are half of the others' target.

    Raises:
      ValueError: the recipe is unknown.
    """
    if recipe not in RECIPES:
        raise ValueError(f"argument recipe={recipe!r}: must be one of {', '.join(RECIPES)}")
    c.name = _name("MoNE", c)
    c.model.method = "mone"
    c.model.num_experts = experts
    low = 0.5 ** (experts - 1)
    if recipe == "paper":
        c.budget.choices = TRAIN_CHOICES
    if recipe == "single":
        c.budget.choices = _spread(low, _SINGLE)
    if recipe == "sandwich":
        c.budget.full_width = True
        c.budget.distill = 0.5
        c.budget.draws = 2
        c.budget.choices = _spread(low, _SANDWICH)
    _budget(c, low=low, e_c=e_c)
    return c


def mod(c: ConfigDict, every: int = 2, e_c: float = -1.0) -> ConfigDict:
    """Make `c` a Mixture-of-Depths.

    Args:
      c: The task.
      every: One block in this many is routed.
      e_c: Train and test at this share of full blocks alone, in [1 - 1/every, 1]; 0: adaptive,
        one model for all shares; negative: 12.5 % of the tokens in routed blocks.
    """
    if every < 1:
        raise ValueError(f"argument every={every}: must be at least 1")
    c.name = _name("MoD", c)
    c.model.method = "mod"
    c.model.mod_every = every
    depth = c.model.depth or every  # Of a variant: a multiple of `every`.
    routed = depth // every / depth
    skip = 1 - routed  # No token in routed blocks: nothing would train their router.
    _budget(c, low=skip + 1e-3, e_c=skip + MOD_TOKENS * routed if e_c < 0 else e_c)
    return c


def _spread(low: float, shares: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(round(low + (1 - low) * share, 2) for share in shares)


def _name(method: str, c: ConfigDict) -> str:
    return f"{method}-{c.model.variant}" if c.model.variant else method


def _budget(c: ConfigDict, low: float, e_c: float) -> None:
    """Set one budget, or those of the task's that a model of lowest budget `low` can meet."""
    c.budget.adaptive = e_c == 0
    if e_c:
        c.budget.e_c = e_c
        c.eval.e_c = (e_c,)
    else:
        c.budget.choices = tuple(x for x in c.budget.choices if x >= low)
        c.eval.e_c = tuple(x for x in c.eval.e_c if x >= low)
