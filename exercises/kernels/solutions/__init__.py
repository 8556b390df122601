"""An answer to each kernel puzzle."""
