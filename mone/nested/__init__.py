"""Nested experts: capacity allocation, routing and nested layers."""

from mone.nested.allocation import (
    allocate_capacity,
    effective_capacity,
    expert_token_counts,
    feasible_interval,
)
from mone.nested.layers import NestedIn, NestedLayerNorm, NestedOut
from mone.nested.routing import Router, expert_preferred_routing, random_router_probs
from mone.nested.tokens import FrozenStats, NestedTokens, group_tokens

__all__ = [
    "FrozenStats",
    "NestedIn",
    "NestedLayerNorm",
    "NestedOut",
    "NestedTokens",
    "Router",
    "allocate_capacity",
    "effective_capacity",
    "expert_preferred_routing",
    "expert_token_counts",
    "feasible_interval",
    "group_tokens",
    "random_router_probs",
]
