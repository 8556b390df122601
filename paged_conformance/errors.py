"""Why a target cannot be used: errors of whoever named it, and no failures of a property."""


class TargetError(Exception):
    """The target cannot be found, loaded or connected to; the message says what to do."""


class BadCapability(TargetError):
    """The target says that it can do something that its suite does not know."""
