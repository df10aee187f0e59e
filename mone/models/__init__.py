"""Vision transformer models."""
