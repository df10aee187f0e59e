"""Accuracy, cost, latency, sweeps and reports."""
