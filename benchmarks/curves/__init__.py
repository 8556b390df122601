"""Cost as work grows: one module a curve, each with the order of growth that it should have."""
