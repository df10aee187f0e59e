"""Experiments on this data set."""
