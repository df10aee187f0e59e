"""Data sources, image pipelines and augmentation."""
