"""Experiment configurations, one file an experiment, grouped by data set."""
