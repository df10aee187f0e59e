"""MACs of a program as JAX traces it and as XLA compiles it: the check on the analytic count.

Two counts of the same function, neither of which knows anything about the model:

- `traced_macs` walks the jaxpr and adds up `dot_general` and `conv_general_dilated`, a scanned
  body times its length. Nothing is compiled or computed.
- `compiled_macs` compiles for this machine's backend and adds up the `dot` and `convolution`
  instructions of XLA's optimised program: what is executed after XLA's own rewrites. It needs an
  unrolled program (a loop's body is one computation in the text) and a backend that keeps dots
  as such, as XLA:CPU does.

XLA's `cost_analysis` counts two FLOPs a MAC plus one for each element of every elementwise
operation, and a loop's body once, so it is close to these counts but not equal;
`compiled_macs` returns it beside its own.
"""

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

import jax


def traced_macs(fn: Callable, *args: Any) -> int:
    """Count the MACs of all matrix products and convolutions of `fn(*args)`.

    Args:
      fn: A traceable function.
      *args: Its arguments, arrays or `jax.ShapeDtypeStruct`s.

    Returns:
      MACs. A `scan` counts its body once for each iteration.

    Raises:
      NotImplementedError: The program has matrix products in a `while`, or in a `cond` whose
        branches differ: how often they run is not known.
    """
    return _jaxpr_macs(jax.make_jaxpr(fn)(*args).jaxpr)


def _jaxpr_macs(jaxpr: Any) -> int:
    return sum(_equation_macs(eqn) for eqn in jaxpr.eqns)


def _equation_macs(eqn: Any) -> int:
    name = eqn.primitive.name
    if name == "dot_general":
        (contract, _), _ = eqn.params["dimension_numbers"]
        shape = eqn.invars[0].aval.shape
        return math.prod(eqn.outvars[0].aval.shape) * math.prod(shape[i] for i in contract)
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return math.prod(eqn.outvars[0].aval.shape) * math.prod(kernel) // features
    inner = [_jaxpr_macs(sub) for sub in _sub_jaxprs(eqn.params)]
    if name == "cond" and len(set(inner)) == 1:  # One of them runs, whichever.
        return inner[0]
    if name in ("while", "cond") and any(inner):
        raise NotImplementedError(f"cannot tell how often the body of a `{name}` runs")
    return sum(inner) * eqn.params["length"] if name == "scan" else sum(inner)


def _sub_jaxprs(params: dict[str, Any]) -> list[Any]:
    """Return the jaxprs among an equation's parameters (jit, remat, scan, custom derivatives)."""
    found = []
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            item = getattr(item, "jaxpr", item)  # ClosedJaxpr.
            if hasattr(item, "eqns"):
                found.append(item)
    return found


@dataclasses.dataclass(frozen=True)
class CompiledMacs:
    """What XLA's optimised program executes."""

    dots: int  # MACs of its `dot` and `convolution` instructions.
    flops: float  # cost_analysis()["flops"]: 2 a MAC, and elementwise operations with them.


def compiled_macs(fn: Callable, *args: Any) -> CompiledMacs:
    """Compile `fn` for these arguments and count the MACs of the optimised program.

    Args:
      fn: A traceable function without loops.
      *args: Its arguments, arrays or `jax.ShapeDtypeStruct`s.

    Raises:
      NotImplementedError: The optimised program has a loop, or hands its matrix products to
        a library call, which this cannot count.
    """
    compiled = jax.jit(fn).lower(*args).compile()
    return CompiledMacs(hlo_macs(compiled.as_text()), compiled.cost_analysis()["flops"])


_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = \(?\w+\[([\d,]*)\]\S* ([\w\-]+)\((.*)$")


def hlo_macs(text: str) -> int:
    """Add up the MACs of the `dot` and `convolution` instructions of an HLO module's text."""
    total = 0
    shapes: dict[str, tuple[int, ...]] = {}
    for line in text.splitlines():
        match = _INSTRUCTION.match(line)
        if not match:
            continue
        name, dims, op, rest = match.groups()
        shape = shapes[name] = tuple(int(d) for d in dims.split(",") if d)
        if op == "while" or (op == "custom-call" and re.search(r"matmul|gemm|conv|dnn", rest)):
            raise NotImplementedError(f"cannot count the MACs of HLO `{op}`: {line.strip()[:120]}")
        if op == "dot":
            operand = shapes[_operands(rest)[0]]
            contract = re.search(r"lhs_contracting_dims=\{([\d,]+)\}", rest)
            axes = contract.group(1).split(",") if contract else ()
            total += math.prod(shape) * math.prod(operand[int(i)] for i in axes)
        elif op == "convolution":
            kernel = shapes[_operands(rest)[1]]
            rhs = re.search(r"dim_labels=\w+_(\w+)->", rest).group(1)
            total += math.prod(shape) * math.prod(kernel) // kernel[rhs.index("o")]
    return total


def _operands(rest: str) -> list[str]:
    """Return the operands' names from what follows `dot(`; layouts and types may precede them."""
    inside = rest.split(")", 1)[0]
    return re.findall(r"%([\w.\-]+)", inside) or [part.strip() for part in inside.split(",")]
