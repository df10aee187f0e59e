"""Errors that are the user's to mend: the command line prints them in one line."""


class UserError(Exception):
    """A mistake in what the user gave; the message names it and says what would be valid."""


class ConfigError(UserError, ValueError):
    """A configuration field has a value that cannot be used."""


class DataError(UserError):
    """A data set is missing, unreadable or not what the configuration says."""


class CheckpointError(UserError):
    """A checkpoint is missing, incomplete or belongs to another configuration."""
