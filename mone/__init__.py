"""Vision transformers whose compute adapts to the input and to a budget."""

__version__ = "0.1.0"
