"""The controller on its own: errors, logging, and what the pair tests do not reach."""
