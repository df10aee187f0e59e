"""At which budgets a model is evaluated."""

from collections.abc import Sequence

from ml_collections import ConfigDict

from mone.errors import ConfigError
from mone.models import budget_counts, vit_config


def evaluation_budgets(
    config: ConfigDict, e_c: Sequence[float] | None = None, *, skip_infeasible: bool = False
) -> dict[float, tuple[int, ...]]:
    """Return the token counts of each budget that a model is to be evaluated at.

    Args:
      config: The experiment; `config.model`, `config.budget` (allocation) and `config.eval.e_c`
        are used.
      e_c: Effective capacities; None: what the model has to offer. That is 1 for "dense", its
        widths as shares of D for "matvit", and those of `config.eval.e_c` that are feasible for
        "mone" and "mod".
      skip_infeasible: Leave out what this model cannot do, so that one list serves several
        models; "dense" and "matvit" then always get their own budgets.

    Returns:
      {e_c: counts}, ascending.

    Raises:
      ConfigError: A given `e_c` is infeasible, or none is left; it names the feasible ones.
    """
    cfg = vit_config(config.model)
    b = config.budget
    if cfg.method in ("dense", "matvit") and (e_c is None or skip_infeasible):
        e_c = [width / cfg.width for width in cfg.widths]
    elif e_c is None:
        e_c, skip_infeasible = config.eval.e_c, True
    counts, problem = {}, None
    for value in sorted(set(e_c)):
        try:
            counts[float(value)] = budget_counts(
                cfg, value, allocation=b.allocation, delta=b.delta, beta=b.beta
            )
        except ConfigError as error:
            if not skip_infeasible:
                raise
            problem = error
    if not counts:
        raise problem or ConfigError("e_c is empty: give at least one budget in (0, 1].")
    return counts
