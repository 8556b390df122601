"""Searches of other projects by `paged-conformance`, and the records of what they found."""
