"""An answer to each exercise. Try first."""
