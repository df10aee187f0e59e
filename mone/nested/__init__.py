"""Nested experts: capacity allocation, routing and nested layers."""
