"""A suite whose only property needs what targets lack."""

from tests.conformance import tiny

CAPABILITIES = tiny.CAPABILITIES
PROPERTIES = tuple(prop for prop in tiny.PROPERTIES if prop.needs)
